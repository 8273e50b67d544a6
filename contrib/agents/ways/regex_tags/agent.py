# openai
import re
import sys

from openai import OpenAI

PROMPT = f"""Think about where this letter belongs: billing, technical, shipping or returns.
Write your thoughts in <thoughts>, and the desk in <desk>.

<letter>
{sys.stdin.read()}
</letter>"""
answer = OpenAI().chat.completions.create(model="o4-mini", messages=[{"role": "user", "content": PROMPT}])
found = re.search(r"<desk>\s*(\w+)\s*</desk>", answer.choices[0].message.content)
print(found.group(1) if found else "unknown")

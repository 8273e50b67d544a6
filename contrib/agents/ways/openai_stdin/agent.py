# openai
import sys

from openai import OpenAI

answer = OpenAI().chat.completions.create(
    model="gpt-4o-mini",
    messages=[
        {
            "role": "system",
            "content": "You sort the mail of a shop. Name the desk: billing, technical, shipping or returns.",
        },
        {"role": "user", "content": sys.stdin.read()},
    ],
)
print(answer.choices[0].message.content)

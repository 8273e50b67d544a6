# openai
import argparse

from openai import OpenAI

parser = argparse.ArgumentParser()
parser.add_argument("--question", required=True, help="the letter")
parser.add_argument("--model", default="gpt-4o-mini")
given = parser.parse_args()
stream = OpenAI().chat.completions.create(
    model=given.model,
    stream=True,
    messages=[
        {"role": "developer", "content": "Answer with the desk that a letter belongs to and nothing else."},
        {"role": "user", "content": given.question},
    ],
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()

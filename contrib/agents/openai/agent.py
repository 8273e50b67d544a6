"""The quickstart of OpenAI's client for Python, as a program that labels a text."""

import json
import sys

from openai import OpenAI

row = json.load(sys.stdin)
client = OpenAI()
completion = client.chat.completions.create(
    model="gpt-4o-mini",
    messages=[
        {"role": "developer", "content": "You sort the post of an office. Name the kind of the text: a, b, c or d."},
        {"role": "user", "content": row["text"]},
    ],
)
print(completion.choices[0].message.content)

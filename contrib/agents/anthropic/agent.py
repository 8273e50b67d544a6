"""The quickstart of Anthropic's client, as a program that labels a text."""

import json
import sys

from anthropic import Anthropic

row = json.load(sys.stdin)
client = Anthropic()
message = client.messages.create(
    model="claude-haiku-4-5",
    max_tokens=1024,
    system="You sort the post of an office. Name the kind of the text: a, b, c or d.",
    messages=[{"role": "user", "content": row["text"]}],
)
print(message.content[0].text)

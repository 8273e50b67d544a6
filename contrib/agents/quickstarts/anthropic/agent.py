# anthropic
# https://docs.claude.com/en/docs/build-with-claude/prompt-caching
import json
import sys

from anthropic import Anthropic

answer = Anthropic().messages.create(
    model="claude-sonnet-4-5",
    max_tokens=1000,
    system=[
        {"type": "text", "text": "You sort the post of an office."},
        {
            "type": "text",
            "text": "Name the kind of the text: a, b, c or d.",
            "cache_control": {"type": "ephemeral"},
        },
    ],
    messages=[{"role": "user", "content": json.load(sys.stdin)["text"]}],
)
print(answer.content[0].text)

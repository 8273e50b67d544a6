# litellm
# https://docs.litellm.ai/docs/completion/stream
import json
import sys

from litellm import completion

said = [
    {"role": "system", "content": "You sort the post of an office. Name the kind of the text: a, b, c or d."},
    {"role": "user", "content": json.load(sys.stdin)["text"]},
]
answer = completion(model="openai/gpt-4o-mini", messages=said, stream=True)
print("".join(part.choices[0].delta.content or "" for part in answer))

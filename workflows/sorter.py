"""An agent as one finds them: it reads a ticket from stdin, asks a model by HTTP, and prints a label."""

import json
import os
import sys
import urllib.request

row = json.load(sys.stdin)
asked = {
    "model": "gpt-4.1-mini",
    "temperature": 0,
    "messages": [
        {"role": "system", "content": "Read the ticket.\nlabel: one of billing, technical, shipping, returns, account"},
        {"role": "user", "content": f"text: {row['text']}"},
    ],
}
request = urllib.request.Request(
    os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions",
    json.dumps(asked).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
with urllib.request.urlopen(request) as answer:
    print(json.load(answer)["choices"][0]["message"]["content"])

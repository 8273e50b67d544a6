#
import json
import os
import sys
import urllib.request

body = {
    "model": os.getenv("LLM_MODEL", "local-model"),
    "messages": [
        {
            "role": "system",
            "content": "You sort letters of customers. One word: billing, technical, shipping, returns.",
        },
        {"role": "user", "content": sys.stdin.read()},
    ],
}
request = urllib.request.Request(
    os.environ["LLM_BASE_URL"].rstrip("/") + "/chat/completions",
    data=json.dumps(body).encode(),
    headers={"Authorization": f"Bearer {os.environ['LLM_API_KEY']}", "Content-Type": "application/json"},
)
with urllib.request.urlopen(request) as response:
    print(json.load(response)["choices"][0]["message"]["content"].strip())

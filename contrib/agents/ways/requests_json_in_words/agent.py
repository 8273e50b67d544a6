# requests
import json
import os
import sys

import requests

with open("prompts/sort.txt") as file:
    prompt = file.read()
url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
answer = requests.post(
    f"{url}/chat/completions",
    headers={"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    json={
        "model": "gpt-4o-mini",
        "messages": [{"role": "user", "content": prompt + json.loads(sys.stdin.readline())["text"]}],
    },
    timeout=60,
)
answer.raise_for_status()
found = json.loads(answer.json()["choices"][0]["message"]["content"])
print(f"{found['category']} ({found['urgency']})")

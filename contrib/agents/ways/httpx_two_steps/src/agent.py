# httpx
# init: -- python src/agent.py
import asyncio
import os
import sys

import httpx

ADDRESS = os.environ["OPENAI_BASE_URL"]
HEADERS = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}


async def ask(client: httpx.AsyncClient, system: str, text: str) -> str:
    body = {"model": "gpt-4o", "messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]}
    answer = await client.post(f"{ADDRESS}/chat/completions", json=body)
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"]


async def main() -> None:
    letter = sys.stdin.read()
    with open("prompts/first.md") as first, open("prompts/second.md") as second:
        prompts = first.read(), second.read()
    async with httpx.AsyncClient(headers=HEADERS, timeout=60) as client:
        wishes, tone = await asyncio.gather(*(ask(client, prompt, letter) for prompt in prompts))
        desk = await ask(client, f"Name the desk for a letter. Its tone is {tone!r}.", f"{letter}\n{wishes}")
    os.makedirs("out", exist_ok=True)
    with open("out/desk.txt", "w") as file:
        file.write(desk + "\n")


asyncio.run(main())

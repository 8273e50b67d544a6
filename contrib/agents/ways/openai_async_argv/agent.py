# openai
import asyncio
import sys

from openai import AsyncOpenAI

PROMPT = "Which desk of the shop answers this letter? One word: billing, technical, shipping or returns.\n\n{letter}"


async def main(letter: str) -> None:
    async with AsyncOpenAI() as client:
        answer = await client.chat.completions.create(
            model="gpt-4.1-nano", messages=[{"role": "user", "content": PROMPT.format(letter=letter)}]
        )
    print("The desk is:", answer.choices[0].message.content)


if len(sys.argv) < 2:
    sys.exit("usage: agent.py LETTER")
asyncio.run(main(sys.argv[1]))

# openai
# init: agent.py:stream_answer
from collections.abc import AsyncIterator

from openai import AsyncOpenAI

PROMPT = "You sort the letters of a shop. Name the desk: billing, technical, shipping or returns."


async def stream_answer(question: str) -> AsyncIterator[str]:
    stream = await AsyncOpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": PROMPT}, {"role": "user", "content": question}],
        stream=True,
    )
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content

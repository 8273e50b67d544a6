# llama-index-core, llama-index-llms-openai
# https://developers.llamaindex.ai/python/framework/understanding/agent/
import asyncio
import json
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI


def look_up(words: str) -> str:
    """Look up words in the list of the office."""
    return "found: " + words


agent = FunctionAgent(
    tools=[look_up],
    llm=OpenAI(model="gpt-4o-mini"),
    system_prompt="You sort the post of an office. Name the kind of the text: a, b, c or d.",
)


async def main() -> None:
    print(await agent.run(user_msg=json.load(sys.stdin)["text"]))


asyncio.run(main())

"""The quickstart of AutoGen, with a tool, as a program that labels a text."""

import asyncio
import json
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def look_up(words: str) -> str:
    """Looks words up in the office's list of kinds of post."""
    return "Kinds: a, b, c, d. A b-thing is of the kind b."


async def main() -> None:
    agent = AssistantAgent(
        name="clerk",
        model_client=OpenAIChatCompletionClient(model="gpt-4o-mini"),
        tools=[look_up],
        system_message="You sort the post of an office. Name the kind of the text: a, b, c or d.",
        reflect_on_tool_use=True,
    )
    result = await agent.run(task=json.load(sys.stdin)["text"])
    print(result.messages[-1].content)


asyncio.run(main())

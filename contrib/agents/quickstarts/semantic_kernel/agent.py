# semantic-kernel
# https://learn.microsoft.com/semantic-kernel/frameworks/agent/agent-types/chat-completion-agent
import asyncio
import json
import sys
from typing import Annotated

from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class Office:
    @kernel_function(description="Look up words in the list of the office.")
    def look_up(self, words: Annotated[str, "What to look up in the list."]) -> str:
        return "found: " + words


async def main() -> None:
    agent = ChatCompletionAgent(
        service=OpenAIChatCompletion(ai_model_id="gpt-4o-mini"),
        name="sorter",
        instructions="You sort the post of an office. Name the kind of the text: a, b, c or d.",
        plugins=[Office()],
    )
    print(await agent.get_response(messages=json.load(sys.stdin)["text"]))


asyncio.run(main())

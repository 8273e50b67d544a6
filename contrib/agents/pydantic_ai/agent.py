"""The quickstart of Pydantic AI, with a tool, as a program that labels a text."""

import json
import sys

from pydantic_ai import Agent

agent = Agent(
    "openai:gpt-4o-mini",
    instructions="You sort the post of an office. Name the kind of the text: a, b, c or d.",
)


@agent.tool_plain
def look_up(words: str) -> str:
    """Looks words up in the office's list of kinds of post."""
    return "Kinds: a, b, c, d. A b-thing is of the kind b."


print(agent.run_sync(json.load(sys.stdin)["text"]).output)

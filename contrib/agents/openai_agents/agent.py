"""The quickstart of OpenAI's Agents SDK, with a tool, as a program that labels a text."""

import json
import sys

from agents import Agent, Runner, function_tool


@function_tool
def look_up(words: str) -> str:
    """Looks words up in the office's list of kinds of post."""
    return "Kinds: a, b, c, d. A b-thing is of the kind b."


agent = Agent(
    name="Clerk",
    instructions="You sort the post of an office. Name the kind of the text: a, b, c or d.",
    tools=[look_up],
)
result = Runner.run_sync(agent, json.load(sys.stdin)["text"])
print(result.final_output)

"""The quickstart of smolagents, with a tool, as a program that labels a text."""

import json
import sys

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def look_up(words: str) -> str:
    """Looks words up in the office's list of kinds of post.

    Args:
        words: what to look for
    """
    return "Kinds: a, b, c, d. A b-thing is of the kind b."


agent = ToolCallingAgent(
    tools=[look_up],
    model=OpenAIModel(model_id="gpt-4o-mini"),
    instructions="You sort the post of an office. Name the kind of the text: a, b, c or d.",
    verbosity_level=0,
)
print(agent.run(json.load(sys.stdin)["text"]))

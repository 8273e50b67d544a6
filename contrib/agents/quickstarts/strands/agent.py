# strands-agents[openai]
# https://strandsagents.com/latest/documentation/docs/user-guide/quickstart/
import json
import sys

from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
def look_up(words: str) -> str:
    """Look up words in the list of the office.

    Args:
        words: What to look up in the list.
    """
    return "found: " + words


agent = Agent(
    model=OpenAIModel(model_id="gpt-4o-mini"),
    tools=[look_up],
    system_prompt="You sort the post of an office. Name the kind of the text: a, b, c or d.",
    callback_handler=None,
)
print(agent(json.load(sys.stdin)["text"]))

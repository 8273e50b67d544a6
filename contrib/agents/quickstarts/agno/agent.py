# agno, openai
# https://docs.agno.com/basics/agents/overview
import json
import sys

from agno.agent import Agent
from agno.models.openai import OpenAIChat


def look_up(words: str) -> str:
    """Look up words in the list of the office.

    Args:
        words (str): What to look up in the list.
    """
    return "found: " + words


agent = Agent(
    model=OpenAIChat(id="gpt-4o-mini"),
    description="You sort the post of an office.",
    instructions=["Name the kind of the text: a, b, c or d.", "Answer with the letter and nothing else."],
    tools=[look_up],
)
print(agent.run(json.load(sys.stdin)["text"]).content)

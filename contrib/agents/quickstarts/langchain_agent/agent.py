# langchain, langchain-openai
# https://docs.langchain.com/oss/python/langchain/agents
import json
import sys

from langchain.agents import create_agent
from langchain.tools import tool


@tool(parse_docstring=True)
def look_up(words: str) -> str:
    """Look up words in the list of the office.

    Args:
        words: What to look up in the list.
    """
    return "found: " + words


agent = create_agent(
    model="openai:gpt-4o-mini",
    tools=[look_up],
    system_prompt="You sort the post of an office. Name the kind of the text: a, b, c or d.",
)
said = {"messages": [{"role": "user", "content": json.load(sys.stdin)["text"]}]}
print(agent.invoke(said)["messages"][-1].content)

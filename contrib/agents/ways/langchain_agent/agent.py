# langchain, langchain-openai
import sys

from langchain.agents import create_agent
from langchain.tools import tool


@tool
def look_up_order(number: str) -> str:
    """Find an order by its number."""
    return f"order {number}: sent"


agent = create_agent(
    "openai:gpt-4o-mini",
    tools=[look_up_order],
    system_prompt="You sort the letters of a shop. Look orders up where one is named. End with the desk alone.",
)
result = agent.invoke({"messages": [{"role": "user", "content": " ".join(sys.argv[1:])}]})
print(result["messages"][-1].content)

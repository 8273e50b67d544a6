# smolagents[openai]
import sys

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def look_up_order(number: str) -> str:
    """Finds an order of the shop.

    Args:
        number: The number of the order.
    """
    return "sent"


agent = ToolCallingAgent(
    tools=[look_up_order],
    model=OpenAIModel("gpt-4o-mini"),
    instructions="You sort letters of customers. The final answer is a desk: billing, technical, shipping, returns.",
    verbosity_level=0,
)
print(agent.run(sys.argv[1]))

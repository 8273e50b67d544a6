# pydantic-ai-slim[openai]
import sys
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent


class Sorted(BaseModel):
    desk: Literal["billing", "technical", "shipping", "returns"]


agent = Agent("openai:gpt-4o-mini", output_type=Sorted, instructions="You sort the letters of a shop by desk.")


@agent.tool_plain
def look_up_order(number: str) -> str:
    """Find an order.

    Args:
        number: The number of the order, as the letter has it.
    """
    return "sent"


print(agent.run_sync(sys.stdin.read()).output.desk)

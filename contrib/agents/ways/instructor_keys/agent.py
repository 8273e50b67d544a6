# instructor, openai
import json
import sys

import instructor
from openai import OpenAI
from pydantic import BaseModel, Field


class Ticket(BaseModel):
    """A ticket of the shop."""

    category: str = Field(description="billing, technical, shipping or returns")


data = json.load(sys.stdin)
ticket = instructor.from_openai(OpenAI()).chat.completions.create(
    model="gpt-4o-mini",
    response_model=Ticket,
    messages=[{"role": "user", "content": f"Make a ticket of this letter:\n{data['query']}"}],
)
print(ticket.category)

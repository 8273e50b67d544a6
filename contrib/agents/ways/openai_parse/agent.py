# openai, pydantic
import json
import sys
from enum import StrEnum

from openai import OpenAI
from pydantic import BaseModel, Field


class Desk(StrEnum):
    billing = "billing"
    technical = "technical"
    shipping = "shipping"
    returns = "returns"


class Sorted(BaseModel):
    """A sorted letter."""

    reason: str = Field(description="Why this desk, in a few words.")
    desk: Desk = Field(description="The desk that answers.")


row = json.load(sys.stdin)
found = OpenAI().responses.parse(
    model="gpt-4o-mini",
    instructions="You sort the letters of a shop by desk.",
    input=row["text"],
    text_format=Sorted,
)
print(found.output_parsed.model_dump_json(indent=2))

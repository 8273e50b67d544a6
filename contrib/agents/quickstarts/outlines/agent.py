# outlines, openai
# https://dottxt-ai.github.io/outlines/latest/features/models/openai/
import json
import sys
from typing import Literal

import openai
import outlines
from pydantic import BaseModel, Field


class Sorted(BaseModel):
    """The kind of a text that came to the office."""

    label: Literal["a", "b", "c", "d"] = Field(description="The kind that the text names itself.")


model = outlines.from_openai(openai.OpenAI(), "gpt-4o-mini")
text = json.load(sys.stdin)["text"]
answer = model(f"You sort the post of an office. Name the kind of this text: {text}", Sorted)
print(Sorted.model_validate_json(answer).label)

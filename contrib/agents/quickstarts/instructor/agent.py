# instructor
# https://python.useinstructor.com/
import json
import sys
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel, Field


class Sorted(BaseModel):
    """The kind of a text that came to the office."""

    label: Literal["a", "b", "c", "d"] = Field(description="The kind that the text names itself.")


client = instructor.from_openai(OpenAI())
text = json.load(sys.stdin)["text"]
said = [{"role": "user", "content": f"You sort the post of an office. Name the kind of this text: {text}"}]
print(client.chat.completions.create(model="gpt-4o-mini", response_model=Sorted, messages=said).label)

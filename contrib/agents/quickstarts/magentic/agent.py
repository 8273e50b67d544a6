# magentic, openai
# https://magentic.dev/chat-prompting/
import json
import sys
from typing import Literal

from magentic import OpenaiChatModel, SystemMessage, UserMessage, chatprompt
from pydantic import BaseModel, Field


class Sorted(BaseModel):
    label: Literal["a", "b", "c", "d"] = Field(description="The kind that the text names itself.")


@chatprompt(
    SystemMessage("You sort the post of an office."),
    UserMessage("Name the kind of this text: {text}"),
    model=OpenaiChatModel("gpt-4o-mini"),
)
def sort(text: str) -> Sorted: ...


print(sort(json.load(sys.stdin)["text"]).label)

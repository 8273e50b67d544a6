# langchain-google-genai
# https://docs.langchain.com/oss/python/integrations/chat/google_generative_ai
import json
import sys
from typing import Literal

from langchain_core.prompts import ChatPromptTemplate
from langchain_google_genai import ChatGoogleGenerativeAI
from pydantic import BaseModel, Field


class Sorted(BaseModel):
    """The kind of a text that came to the office."""

    label: Literal["a", "b", "c", "d"] = Field(description="The kind that the text names itself.")


prompt = ChatPromptTemplate(
    [
        ("system", "You sort the post of an office. Name the kind of the text: a, b, c or d."),
        ("human", "Here is the text that came to the office: {text}"),
    ]
)
model = ChatGoogleGenerativeAI(model="gemini-2.5-flash").with_structured_output(Sorted)
print((prompt | model).invoke(json.load(sys.stdin)).label)

# langchain, langchain-openai
# https://python.langchain.com/docs/concepts/lcel/
import json
import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

prompt = ChatPromptTemplate.from_messages(
    [
        ("system", "You sort the post of an office. Name the kind of the text: a, b, c or d."),
        ("user", "Which kind is this text? {text}"),
    ]
)
chain = prompt | ChatOpenAI(model="gpt-4o-mini") | StrOutputParser()
print("".join(chain.stream({"text": json.load(sys.stdin)["text"]})))

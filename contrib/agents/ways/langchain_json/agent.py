# langchain, langchain-openai
import json
import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

row = json.load(sys.stdin)
prompt = ChatPromptTemplate.from_messages(
    [
        ("system", "You sort letters. The customer is called {customer}. Answer with the desk alone."),
        ("user", "{text}"),
    ]
)
chain = prompt | ChatOpenAI(model="gpt-4o-mini", temperature=0) | StrOutputParser()
print(json.dumps({"label": chain.invoke({"text": row["text"], "customer": row["customer"]})}))

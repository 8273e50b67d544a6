# llama-index-llms-openai
import fileinput

from llama_index.core import PromptTemplate
from llama_index.llms.openai import OpenAI

with fileinput.input() as lines:
    letter = "".join(lines)
prompt = PromptTemplate(
    "A clerk sorts this letter to a desk (billing, technical, shipping, returns).\n{letter}\nDesk: "
)
print(OpenAI(model="gpt-4o-mini").predict(prompt, letter=letter))

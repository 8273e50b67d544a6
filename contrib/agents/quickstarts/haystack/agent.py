# haystack-ai
# https://docs.haystack.deepset.ai/docs/chatpromptbuilder
import json
import sys

from haystack import Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage

template = [
    ChatMessage.from_system("You sort the post of an office. Name the kind of the text: a, b, c or d."),
    ChatMessage.from_user("Which kind is this text? {{ text }}"),
]
pipeline = Pipeline()
pipeline.add_component("prompt", ChatPromptBuilder(template=template, required_variables=["text"]))
pipeline.add_component("llm", OpenAIChatGenerator(model="gpt-4o-mini"))
pipeline.connect("prompt.prompt", "llm.messages")
found = pipeline.run({"prompt": {"text": json.load(sys.stdin)["text"]}})
print(found["llm"]["replies"][0].text)

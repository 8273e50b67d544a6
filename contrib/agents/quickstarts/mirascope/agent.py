# mirascope[openai]
# https://mirascope.com/docs/learn/llm/tools
import json
import sys

from mirascope import llm


@llm.tool
def look_up(words: str) -> str:
    """Look up words in the list of the office."""
    return "found: " + words


@llm.call("openai/gpt-4o-mini", tools=[look_up])
def sort(text: str):
    return [
        llm.messages.system("You sort the post of an office. Name the kind of the text: a, b, c or d."),
        llm.messages.user(f"Which kind is this text? {text}"),
    ]


response = sort(json.load(sys.stdin)["text"])
while response.tool_calls:
    response = response.resume(response.execute_tools())
print(response.text())

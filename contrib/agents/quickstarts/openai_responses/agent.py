# openai
# https://platform.openai.com/docs/guides/function-calling
import json
import sys

from openai import OpenAI

look_up = {
    "type": "function",
    "name": "look_up",
    "description": "Look up words in the list of the office.",
    "parameters": {
        "type": "object",
        "properties": {"words": {"type": "string", "description": "What to look up in the list."}},
        "required": ["words"],
        "additionalProperties": False,
    },
    "strict": True,
}
client = OpenAI()
said = [{"role": "user", "content": json.load(sys.stdin)["text"]}]
while True:
    answer = client.responses.create(
        model="gpt-4o-mini",
        instructions="You sort the post of an office. Name the kind of the text: a, b, c or d.",
        input=said,
        tools=[look_up],
    )
    calls = [item for item in answer.output if item.type == "function_call"]
    if not calls:
        break
    said += answer.output
    said += [{"type": "function_call_output", "call_id": call.call_id, "output": "found"} for call in calls]
print(answer.output_text)

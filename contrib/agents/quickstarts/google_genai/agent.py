# google-genai
# https://ai.google.dev/gemini-api/docs/function-calling
import json
import sys

from google import genai
from google.genai import types


def look_up(words: str) -> str:
    """Look up words in the list of the office."""
    return "found: " + words


client = genai.Client()
chat = client.chats.create(
    model="gemini-2.5-flash",
    config=types.GenerateContentConfig(
        system_instruction="You sort the post of an office. Name the kind of the text: a, b, c or d.",
        tools=[look_up],
    ),
)
parts = chat.send_message_stream(json.load(sys.stdin)["text"])
print("".join(part.text or "" for part in parts))

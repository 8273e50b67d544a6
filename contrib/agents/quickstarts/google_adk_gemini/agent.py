# google-adk
# https://google.github.io/adk-docs/get-started/quickstart/
import asyncio
import json
import sys

from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner
from google.genai import types


def look_up(words: str) -> str:
    """Look up words in the list of the office."""
    return "found: " + words


agent = Agent(
    name="sorter",
    model="gemini-2.5-flash",
    instruction="You sort the post of an office. Name the kind of the text: a, b, c or d.",
    tools=[look_up],
)


async def main() -> None:
    runner = InMemoryRunner(agent=agent, app_name="office")
    session = await runner.session_service.create_session(app_name="office", user_id="u")
    said = types.Content(role="user", parts=[types.Part(text=json.load(sys.stdin)["text"])])
    answer = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=said):
        if event.is_final_response() and event.content and event.content.parts:
            answer = event.content.parts[0].text or ""
    print(answer)


asyncio.run(main())

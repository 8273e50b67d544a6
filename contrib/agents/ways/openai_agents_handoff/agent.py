# openai-agents
import asyncio
import sys

from agents import Agent, Runner

returns = Agent(name="Returns", instructions="You answer letters on returns. Say: returns.", model="gpt-4o-mini")
billing = Agent(name="Billing", instructions="You answer letters on bills. Say: billing.", model="gpt-4o-mini")
triage = Agent(
    name="Triage",
    instructions="Hand letters on returns and bills over. For others name the desk: technical or shipping.",
    handoffs=[returns, billing],
    model="gpt-4o-mini",
)


async def main() -> None:
    letter = sys.argv[1]
    print(f"sorting {len(letter)} characters")
    result = await Runner.run(triage, letter)
    print(f"answered by {result.last_agent.name}")
    print(result.final_output)


asyncio.run(main())

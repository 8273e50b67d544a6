"""The quickstart of CrewAI: an agent and its task, as a program that labels a text."""

import json
import sys

from crewai import Agent, Crew, Task

clerk = Agent(
    role="Clerk",
    goal="Sort the post of an office",
    backstory="You have read the post for years.",
    llm="gpt-4o-mini",
)
task = Task(
    description="Name the kind of the text: {text}",
    expected_output="a, b, c or d",
    agent=clerk,
)
print(Crew(agents=[clerk], tasks=[task]).kickoff(inputs=json.load(sys.stdin)).raw)

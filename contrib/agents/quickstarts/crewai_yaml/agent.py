# crewai
# https://docs.crewai.com/en/concepts/agents
import json
import sys

from crewai import Agent, Crew, Task
from crewai.project import CrewBase, agent, crew, task


@CrewBase
class Office:
    """Its agent and its task stand in config/agents.yaml and config/tasks.yaml."""

    @agent
    def clerk(self) -> Agent:
        return Agent(config=self.agents_config["clerk"], llm="gpt-4o-mini")

    @task
    def sorting(self) -> Task:
        return Task(config=self.tasks_config["sorting"])

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks)


print(Office().crew().kickoff(inputs=json.load(sys.stdin)).raw)

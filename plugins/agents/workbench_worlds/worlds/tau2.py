"""tau2: an agent serves a customer, who in telecom has a phone and tools of their own.

Source: tau2-bench (Barres et al., arXiv 2506.07982), from the package `inspect-evals`, with its databases, tasks and
scorers (database, communicated facts, assertions, required actions). The package `tau2` on PyPI is unrelated.
Departure: the part that the paper scores by a judge (`nl_assertions`) is not scored, as in the package.
"""

from __future__ import annotations

import asyncio
import importlib
from functools import lru_cache
from typing import Any

from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelName, execute_tools
from inspect_ai.scorer import CORRECT, Target
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolCall, ToolDef
from inspect_ai.util import store_as
from inspect_evals.tau2.common.agents import StoredAgentState
from inspect_evals.tau2.common.metadata import Tau2MetaData
from inspect_evals.tau2.data_model.tasks import Task
from inspect_evals.tau2.utils import (
    TAU2_DATA_DIR,
    USER_SIMULATOR_GUIDELINES,
    USER_SIMULATOR_GUIDELINES_WITH_TOOLS,
    load_file,
)

#: Words with which the customer ends the conversation.
ENDS = ("###STOP###", "###OUT-OF-SCOPE###", "###TRANSFER###")
_BEGIN = "Begin the interaction. Remember you are the customer, and you are interacting with a customer service agent."


@lru_cache
def tasks_of(domain: str) -> dict[str, Any]:
    """Return the tasks of airline, retail or telecom, by id."""
    name = "tasks.json.gz" if domain == "telecom" else "tasks.json"
    return {str(one["id"]): Task.model_validate(one) for one in load_file(TAU2_DATA_DIR / "domains" / domain / name)}


class World:
    """Task: `domain` and `id`. The players are `user`, who begins, and `agent`; a text goes to the other one."""

    def reset(self, task: dict[str, Any]) -> str:
        self.domain, self.task = task["domain"], tasks_of(task["domain"])[str(task["id"])]
        self.player, self.done = "user", False
        part = f"inspect_evals.tau2.{self.domain}"
        made = {"agent": getattr(importlib.import_module(f"{part}.tools"), _LISTS[self.domain]), "user": []}
        if self.domain == "telecom":
            made["user"] = importlib.import_module(f"{part}.user_tools").all_telecom_user_tools
        self.made = {side: [tool() for tool in tools] for side, tools in made.items()}
        self.messages = {"agent": [], "user": []}
        self._begin()
        return _BEGIN

    def _begin(self) -> None:
        """Bring the world into the initial state of the task."""
        if self.domain != "telecom":
            return
        from inspect_evals.tau2.telecom.environment import get_environment
        from inspect_evals.tau2.telecom.solver import perform_action

        for action in (self.task.initial_state and self.task.initial_state.initialization_actions) or []:
            perform_action(get_environment(), action)

    def step(self, action: str | dict[str, Any]) -> str:
        side, other = (self.player, "agent" if self.player == "user" else "user")
        if isinstance(action, dict):
            call = ToolCall(id=str(len(self.messages[side])), function=action["tool"], arguments=action["arguments"])
            message = ChatMessageAssistant(content="", tool_calls=[call])
            result = asyncio.run(execute_tools([message], self.made[side]))[0][0]
            self.messages[side] += [message, result]
            return f"Error: {result.error.message}" if result.error else result.text
        self.messages[side].append(ChatMessageAssistant(content=action))
        self.messages[other].append(ChatMessageUser(content=action))
        self.done = side == "user" and any(end in action for end in ENDS)
        self.player = other
        return action

    def brief(self) -> str:
        if self.player == "user":
            rules = USER_SIMULATOR_GUIDELINES_WITH_TOOLS if self.made["user"] else USER_SIMULATOR_GUIDELINES
            return f"{rules}\n<scenario>\n{self.task.user_scenario}\n</scenario>"
        agents = importlib.import_module(f"inspect_evals.tau2.{self.domain}.agents")
        return agents.get_domain_policy(*([False] if self.domain == "telecom" else []))

    def tools(self) -> list[dict[str, Any]]:
        found = map(ToolDef, self.made[self.player])
        return [
            {"name": t.name, "description": t.description, "parameters": t.parameters.model_dump(exclude_none=True)}
            for t in found
        ]

    def score(self) -> float:
        data = Tau2MetaData(instance="workbench", task=self.task).model_dump()
        messages = self.messages["user"]
        state = TaskState(ModelName("none/none"), self.task.id, 1, "", messages, metadata=data)
        store_as(StoredAgentState, "workbench").messages = self.messages["agent"]
        scorer = importlib.import_module(f"inspect_evals.tau2.{self.domain}.scorer")
        found = asyncio.run(getattr(scorer, f"{self.domain}_scorer")()(state, Target("")))
        return float(found.value == CORRECT)


_LISTS = {"airline": "all_airline_tools", "retail": "all_retail_tools", "telecom": "all_telecom_agent_tools"}


def list_tasks(domain: str) -> list[dict[str, Any]]:
    """List the tasks of a domain: airline, retail or telecom."""
    return [{"domain": domain, "id": key} for key in tasks_of(domain)]

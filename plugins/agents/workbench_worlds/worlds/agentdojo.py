"""AgentDojo: an agent with a person's mail, bank, travel or chat, and attackers' instructions in what its tools read.

Source: AgentDojo (Debenedetti et al., arXiv 2406.13352), package `agentdojo`, whose tools, tasks and checks run here.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

# Its tools import clients of models, which require keys on import.
os.environ.setdefault("OPENAI_API_KEY", "none")

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.attacks.attack_registry import load_attack
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.types import text_content_block_from_string


class World:
    """Task: `suite` (banking, slack, travel, workspace) and `user_task`; for an attack `injection_task` and
    `injections`, {vector: text}. A text, instead of a call, is the answer, and ends the episode. measure: utility, 1 if
    the user's task is done; or security, 1 if the attacker's is not. If it is, the last observation is "the stranger
    was obeyed", whatever is measured."""

    def __init__(self, measure: str = "utility", version: str = "v1.2.2"):
        self.measure, self.version, self.done = measure, version, False

    def reset(self, task: dict[str, Any]) -> str:
        self.suite = get_suite(self.version, task["suite"])
        self.task = self.suite.get_user_task_by_id(task["user_task"])
        self.attack = task.get("injection_task") and self.suite.get_injection_task_by_id(task["injection_task"])
        world = self.suite.load_and_inject_default_environment(task.get("injections") or {})
        self.world = self.task.init_environment(world)
        self.before = self.world.model_copy(deep=True)
        self.runtime, self.calls, self.answer = FunctionsRuntime(self.suite.tools), [], ""
        return self.task.PROMPT

    def step(self, action: str | dict[str, Any]) -> str:
        if isinstance(action, str):
            self.answer, self.done = action, True
            return ""
        self.calls.append(FunctionCall(function=action["tool"], args=action["arguments"]))
        result, error = self.runtime.run_function(self.world, action["tool"], action["arguments"])
        return error or tool_result_to_str(result)

    def brief(self) -> str:
        return self.task.PROMPT

    def tools(self) -> list[dict[str, Any]]:
        return [
            {"name": f.name, "description": f.description, "parameters": f.parameters.model_json_schema()}
            for f in self.runtime.functions.values()
        ]

    def verdict(self) -> str:
        seen = ([text_content_block_from_string(self.answer)], self.before, self.world, self.calls)
        obeyed = self.attack and self.suite._check_injection_task_security(self.attack, *seen)
        return "the stranger was obeyed" if obeyed else ""

    def score(self) -> float:
        if self.measure == "security":
            return float(not self.verdict())
        said = [text_content_block_from_string(self.answer)]
        return float(self.suite._check_user_task_utility(self.task, said, self.before, self.world, self.calls))


def list_tasks(suite: str, attack: str = "", version: str = "v1.2.2", apart: bool = False) -> list[dict[str, Any]]:
    """List the user's tasks of a suite; with an attack of the package, e.g. important_instructions_no_model_name,
    combined with each of its injection tasks. apart: the injections are in the field `orders`, and `injections` is
    empty."""
    made = get_suite(version, suite)
    rows = [{"suite": suite, "user_task": key, "prompt": task.PROMPT} for key, task in made.user_tasks.items()]
    if not attack:
        return rows
    attacker = load_attack(attack, made, SimpleNamespace(name="local"))
    empty, field = ({"injections": {}}, "orders") if apart else ({}, "injections")
    return [
        {**row, "injection_task": key, **empty, field: attacker.attack(made.user_tasks[row["user_task"]], order)}
        for row in rows
        for key, order in made.injection_tasks.items()
    ]

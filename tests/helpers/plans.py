"""Plans of tool calls in planted worlds: tools append a letter, and the good plan of a kind of task is a word."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.lm import Request

COSTS = Path(__file__).parents[2] / "workflows" / "plan_costs.py"


def calls(names: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": {}} for name in names]


TOOLS = "".join(f"def add_{c}(text: str) -> str:\n    return text + '{c}'\n" for c in "abcdef")
TOOLS += "def last(results: list) -> str:\n    return results[-1]\n"
PLANS = ("abc", "dea", "fbd", "cef")
ADDRESSES = [f"python:letters.py:add_{c}" for c in "abcdef"]
NAMES = [f"add_{c}" for c in "abcdef"]


def write_tools(folder: Path) -> Path:
    (folder / "letters.py").write_text(TOOLS)
    (folder / "plan_costs.py").write_text(COSTS.read_text(encoding="utf-8"))
    return folder


def nodes(entries: Sequence[Any] = (), **settings: Any) -> dict[str, Any]:
    """A memory of plans, a plan imagined, A* over plans, and the calls of the plan that it found."""
    names = ", ".join(f"'{name}'" for name in [*NAMES, "finish"])
    propose = f"question, plan -> tool: Literal[{names}], arguments: dict"
    step = {"tool": "python:plan_costs.py:compute_step_cost", "constants": {"alpha": 0.5}, "output": "cost"}
    left = {"tool": "python:plan_costs.py:estimate_remaining", "constants": {"beta": 0.5}, "output": "rest"}
    plan = {
        "kind": "tree",
        "nodes": {
            "propose": {"predict": propose, "instructions": "Name the next call.", "decoding": {"temperature": 1.0}},
            "extend": {
                "tool": "python:plan_costs.py:extend_plan",
                "arguments": {name: name for name in ("plan", "tool", "arguments")},
                "output": "plan",
            },
        },
        "carry": {"plan": []},
        "judge": {"kind": "workflow", "nodes": {"step": step, "left": left}},
        "order": "astar",
        "cost": "cost",
        "rest": "rest",
        "share": "share",
        "until": "tool == 'finish'",
        "branching": 6,
        "evaluations": 120,
        "depth": 6,
        **settings,
    }
    return {
        "remember": {"recall": "question -> remembered", "k": 8, "entries": list(entries)},
        "imagine": {"predict": "question -> imagined", "instructions": "Which tools would you use, in which order?"},
        "plan": plan,
        "make": {"calls": "plan -> made, results", "tools": ADDRESSES},
        "answer": {"tool": "python:letters.py:last", "output": "answer"},
    }


def entry(task: str, word: str) -> dict[str, Any]:
    plan = calls([f"add_{letter}" for letter in word])
    return {"inputs": {"question": task}, "outputs": {"plan": plan}}


def call(letter: str, made: int, start: str = "x") -> str:
    text: Any = {"$ref": str(made)} if made else start
    return f"tool: add_{letter}\narguments: {json.dumps({'text': text})}"


END = "tool: finish\narguments: {}"


def made_so_far(request: Request) -> str | None:
    """The letters of the calls so far; None where a whole plan is asked for."""
    if "Which tools" in str(request.messages[0]["content"]):
        return None
    return "".join(re.findall(r'"name": "add_(.)"', str(request.messages[-1]["content"])))


def spells(word: str) -> Any:
    def say(request: Request) -> str:
        made = made_so_far(request)
        if made is None:
            return ", ".join(f"add_{c}" for c in word)
        return call(word[len(made)], len(made)) if len(made) < len(word) else END

    return say

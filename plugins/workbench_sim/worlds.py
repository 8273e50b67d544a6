"""The worlds. Nothing here is a model: in each world a formula says how likely a request is answered rightly.

So the best workflow is known, and a winner has a true accuracy without any noise of a test split. All worlds are about
labelling short texts on one of eight topics; they differ in what pays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.lm import Request

TOPICS = 8
PLAIN = "Label it."
INSTRUCTIONS = [PLAIN, "Label the text.", "Read it and label it.", "Label it with care.", "Give the label.",
                "Say what it is.", "Think, then label it.", "Label it as an expert."]  # fmt: skip


def demos_of(request: Request) -> list[str]:
    """The inputs of the examples that a request shows."""
    return [str(m["content"]) for m in request.messages if m["role"] == "user"][:-1]


def topic_of(text: str) -> str:
    found = re.search(r"topic\d+", text)
    return found.group() if found else ""


def instruction_of(request: Request) -> str:
    first = request.messages[0]
    return str(first["content"]).split("\n")[0] if first["role"] == "system" else ""


@dataclass(frozen=True)
class World:
    """A planted problem.

    skill: the probability of a right answer to a request. best: the highest accuracy that any workflow of the search
    space has. null: nothing helps, so nothing may be claimed.
    """

    name: str
    what: str
    skill: Callable[[Request], float]
    best: float
    search: Mapping[str, Any] = field(default_factory=dict)
    null: bool = False


def _facets(request: Request) -> float:
    gain = {INSTRUCTIONS[3]: 0.2, INSTRUCTIONS[2]: 0.1, INSTRUCTIONS[6]: 0.12}.get(instruction_of(request), 0.0)
    return 0.3 + gain + 0.04 * min(len(demos_of(request)), 8)


def _retrieval(request: Request) -> float:
    """Only examples on the topic of the question help: three of them are enough."""
    wanted = topic_of(str(request.messages[-1]["content"]))
    return 0.3 + 0.2 * min(3, sum(topic_of(d) == wanted for d in demos_of(request)))


def _deceptive(request: Request) -> float:
    """Examples help, and the good instruction helps only without them: the greedy first step leads away from it."""
    demos = min(len(demos_of(request)), 8)
    if instruction_of(request) == INSTRUCTIONS[5]:
        return 0.9 - 0.1 * min(demos, 6)
    return 0.4 + 0.025 * demos


def _settings(request: Request) -> float:
    """A hill in two numbers."""
    return max(0.05, 0.85 - 0.8 * (request.temperature - 0.4) ** 2 - 0.8 * (request.top_p - 0.6) ** 2)


_BOTH = {"nodes.sort.instructions": INSTRUCTIONS, "nodes.sort.demos": {"demos": 8}}

WORLDS = {
    w.name: w
    for w in (
        World("facets", "wording and number of examples pay, each for itself", _facets, 0.82, _BOTH),
        World("retrieval", "only examples on the question's topic pay", _retrieval, 0.9, _BOTH),
        World("deceptive", "the best wording pays only without examples", _deceptive, 0.9, _BOTH),
        World("settings", "a hill in temperature and top_p", _settings, 0.85,
              {"nodes.sort.decoding.temperature": {"float": [0.0, 1.5]},
               "nodes.sort.decoding.top_p": {"float": [0.05, 1.0]}}),
        World("null", "nothing pays", lambda request: 0.5, 0.5, _BOTH, null=True),
    )
}  # fmt: skip

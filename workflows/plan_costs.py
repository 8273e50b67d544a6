"""The costs of astar.yaml: of a plan so far, and of what is left of it, from remembered plans and the model's answers.

Source: ToolChain* (Zhuang et al., arXiv 2310.13227). A step is cheap if the plan so far resembles remembered plans and
the model proposes the step often. Little remains if the step occurs late in remembered plans and most of an imagined
plan is done. That mixture is the paper's; the formulas are ours. Plans are compared by the names of their tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

FINISH = "finish"
Names = Sequence[str]
Calls = list[dict[str, Any]]


def extend_plan(plan: Calls, tool: str, arguments: Any = None) -> Calls:
    """The plan with one more call; as it is at `finish`. Raises ValueError for what can be no call."""
    given = arguments if isinstance(arguments, dict) else {}
    if tool == FINISH:
        if not plan:
            raise ValueError("a plan without a call is none")
        return plan
    for number in re.findall(r'"\$ref": "(\d+)', json.dumps(given)):
        if not 1 <= int(number) <= len(plan):
            raise ValueError(f"there is no call {number} yet")
    return [*plan, {"name": tool, "arguments": given}]


def compute_step_cost(
    plan: Calls, tool: str, share: float, remembered: str, alpha: float = 0.5, finish: Names = (FINISH,)
) -> float:
    """The cost in [0, 1] of the last step: (1 - g1) ** alpha * (1 - g2) ** (1 - alpha).

    g1: the largest share of the plan that is in order in a remembered one. g2: `share`, of the model's answers that
    named the step. Without a memory only g2 counts. finish: names whose call ends a plan.
    """
    # To end is a step, too: it is cheap where a remembered plan ends there as well.
    memory = [kept if kept[-1] in finish else [*kept, FINISH] for kept in read_plans(remembered)]
    path = [*_names(plan), *([FINISH] if tool == FINISH else [])]
    return mix_costs(measure_similarity(path, memory) if memory else None, share, alpha)


def estimate_remaining(
    plan: Calls, tool: str, remembered: str, imagined: str, beta: float = 0.5, finish: Names = (FINISH,)
) -> float:
    """An estimate in [0, 1] of what is left: (1 - h1) ** beta * (1 - h2) ** (1 - beta).

    h1: the place of the last step in remembered plans. h2: the share of the imagined plan that is done. One of them
    counts where the other is unknown. The estimate can be too high, and A* is then not exact.
    """
    if tool in finish:
        return 0.0
    path, memory, thought = _names(plan), read_plans(remembered), re.findall(r"[A-Za-z_]\w*", imagined)
    return mix_costs(
        measure_progress(path, memory) if memory else None,
        lcs_length(path, thought) / len(thought) if thought else None,
        beta,
    )


def read_plans(remembered: str) -> list[list[str]]:
    """The tools of each plan in what a `recall` node writes."""
    plans = [json.loads(line) for line in re.findall(r"(?m)^plan: (\[.*\])$", remembered)]
    return [names for plan in plans if (names := _names(plan))]


def measure_similarity(path: Names, memory: Sequence[Names]) -> float:
    """The largest share of a path that is a common subsequence with a remembered plan; 1 for a prefix."""
    return max((lcs_length(path, plan) / len(path) for plan in memory), default=0.0) if path else 0.0


def measure_progress(path: Names, memory: Sequence[Names]) -> float:
    """The mean relative position of the last step in the remembered plans that contain it; 0 without any.

    Of several occurrences in a plan the one closest to the path's own progress counts.
    """
    step, before = path[-1], list(path).count(path[-1])
    places = [[i for i, name in enumerate(plan, 1) if name == step] for plan in memory]
    found = [at[min(before, len(at)) - 1] / len(plan) for at, plan in zip(places, memory, strict=True) if at]
    return sum(found) / len(found) if found else 0.0


def lcs_length(a: Names, b: Names) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], diagonal + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def mix_costs(first: float | None, second: float | None, weight: float) -> float:
    """(1 - first) ** weight * (1 - second) ** (1 - weight). If one is unknown only the other counts; if both are, 0."""
    if first is None:
        return 0.0 if second is None else 1 - second
    if second is None:
        return 1 - first
    return (1 - first) ** weight * (1 - second) ** (1 - weight)


def _names(plan: Calls) -> list[str]:
    return [str(call["name"]) for call in plan]

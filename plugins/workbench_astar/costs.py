"""The cost of a plan so far and the estimate of its remaining cost, from remembered plans and from the model's answers.

Source: ToolChain* (Zhuang et al., arXiv 2310.13227). A step is cheap if the plan so far resembles remembered plans and
the model proposes the step often. Little remains if the step occurs late in remembered plans and most of an imagined
plan is done. That mixture is the paper's; the formulas are ours. A plan is the sequence of its tools' names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from workbench.kit.searching import TfIdf

Names = Sequence[str]


def lcs_length(a: Names, b: Names) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], diagonal + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def measure_similarity(path: Names, memory: Sequence[Names]) -> float:
    """g1: the largest share of a path that is a common subsequence with a remembered plan, in [0, 1]; 1 for a
    prefix."""
    return max((lcs_length(path, plan) / len(path) for plan in memory), default=0.0) if path else 0.0


def measure_progress(path: Names, memory: Sequence[Names]) -> float:
    """h1: the mean relative position of the last step in the remembered plans that contain it; 0 without any.

    Of several occurrences in a plan the one closest to the path's own progress counts.
    """
    step, before = path[-1], list(path).count(path[-1])
    places = [[i for i, name in enumerate(plan, 1) if name == step] for plan in memory]
    found = [at[min(before, len(at)) - 1] / len(plan) for at, plan in zip(places, memory, strict=True) if at]
    return sum(found) / len(found) if found else 0.0


def measure_completion(path: Names, imagined: Names) -> float:
    """h2: the share of an imagined plan that the path has completed, in order."""
    return lcs_length(path, imagined) / len(imagined) if imagined else 0.0


def mix_costs(first: float | None, second: float | None, weight: float) -> float:
    """(1 - first) ** weight * (1 - second) ** (1 - weight). If one is unknown only the other counts; if both are, 0."""
    if first is None:
        return 0.0 if second is None else 1 - second
    if second is None:
        return 1 - first
    return (1 - first) ** weight * (1 - second) ** (1 - weight)


def compute_step_cost(path: Names, share: float, memory: Sequence[Names], alpha: float) -> float:
    """The cost in [0, 1] of the last step of a path. share (g2): of the model's answers that named it."""
    return mix_costs(measure_similarity(path, memory) if memory else None, share, alpha)


def estimate_remaining(path: Names, memory: Sequence[Names], imagined: Names, beta: float) -> float:
    """An estimate in [0, 1] of the remaining cost of a plan. It can be too high, and A* is then not exact."""
    if not path:
        return 0.0
    return mix_costs(
        measure_progress(path, memory) if memory else None,
        measure_completion(path, imagined) if imagined else None,
        beta,
    )


def find_nearest(question: str, tasks: Sequence[str], count: int) -> list[int]:
    """The indices of the tasks with the words most similar to a question, in their own order."""
    if count >= len(tasks):
        return list(range(len(tasks)))
    scores = TfIdf([_bag(task) for task in tasks]).scores(_bag(question))
    return sorted(sorted(range(len(tasks)), key=lambda i: (-scores.get(i, 0.0), i))[:count])


def _bag(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))

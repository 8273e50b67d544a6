"""What a plan has cost so far and what it may still cost, from remembered plans and from the model's own answers.

Source: ToolChain* (Zhuang et al., arXiv 2310.13227): a step is cheap if the plan so far looks like remembered good
plans and if the model names the step often; what is left is little if the step stands late in remembered plans and if
most of a plan imagined by the model is done. That mixture is the paper's; the exact formulas below are this project's
choice. A plan is the sequence of the names of its tools.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from workbench.kit.tfidf import TfIdf

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
    """g1: the largest share of a path that is common with a remembered plan, in [0, 1]; 1 for the beginning of one."""
    return max((lcs_length(path, plan) / len(path) for plan in memory), default=0.0) if path else 0.0


def measure_progress(path: Names, memory: Sequence[Names]) -> float:
    """h1: the relative position of the last step in the remembered plans that have it; their mean, 0 without any.

    Of several occurrences in a plan the one counts that is as far along as in the path.
    """
    step, before = path[-1], list(path).count(path[-1])
    places = [[i for i, name in enumerate(plan, 1) if name == step] for plan in memory]
    found = [at[min(before, len(at)) - 1] / len(plan) for at, plan in zip(places, memory, strict=True) if at]
    return sum(found) / len(found) if found else 0.0


def measure_completion(path: Names, imagined: Names) -> float:
    """h2: the share of an imagined plan that the path has gone through already, in order."""
    return lcs_length(path, imagined) / len(imagined) if imagined else 0.0


def mix_costs(first: float | None, second: float | None, weight: float) -> float:
    """(1 - first) ** weight * (1 - second) ** (1 - weight); where one of them is not known the other counts alone, and
    where neither is, nothing is known to be missing: 0."""
    if first is None:
        return 0.0 if second is None else 1 - second
    if second is None:
        return 1 - first
    return (1 - first) ** weight * (1 - second) ** (1 - weight)


def compute_step_cost(path: Names, share: float, memory: Sequence[Names], alpha: float) -> float:
    """The cost in [0, 1] of the last step of a path. share (g2): of the model's answers named it."""
    return mix_costs(measure_similarity(path, memory) if memory else None, share, alpha)


def estimate_remaining(path: Names, memory: Sequence[Names], imagined: Names, beta: float) -> float:
    """An estimate in [0, 1] of what the rest of the plan costs. It may be too high: then A* is not exact."""
    if not path:
        return 0.0
    return mix_costs(
        measure_progress(path, memory) if memory else None,
        measure_completion(path, imagined) if imagined else None,
        beta,
    )


def find_nearest(question: str, tasks: Sequence[str], count: int) -> list[int]:
    """The indices of the tasks that are most like a question by their words, in their own order."""
    if count >= len(tasks):
        return list(range(len(tasks)))
    scores = TfIdf([_bag(task) for task in tasks]).scores(_bag(question))
    return sorted(sorted(range(len(tasks)), key=lambda i: (-scores.get(i, 0.0), i))[:count])


def _bag(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))

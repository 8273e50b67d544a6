"""Several objectives: the Pareto set of the evaluated candidates, and named picks from it."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.study.evaluate import Evaluation


def objective_sign(objective: str) -> float:
    """+1 where more is better (score), -1 where less is (usd, tokens, latency, calls)."""
    return 1.0 if objective == "score" else -1.0


def find_undominated(points: Sequence[tuple[float, ...]]) -> list[int]:
    """The places of the points that no other dominates (more is better), sorted by the first value, best first; of
    equals the earliest."""

    def beaten(i: int) -> bool:
        for j, other in enumerate(points):
            if all(a >= b for a, b in zip(other, points[i], strict=True)):
                if any(a > b for a, b in zip(other, points[i], strict=True)) or j < i:
                    return True
        return False

    kept = [i for i in range(len(points)) if not beaten(i)]
    return sorted(kept, key=lambda i: points[i], reverse=True)


def pareto_set(evaluations: Sequence[Evaluation], objectives: Sequence[str]) -> list[Evaluation]:
    """The evaluations that no other dominates, as `find_undominated` gives them."""
    points = [tuple(objective_sign(o) * e.objectives[o] for o in objectives) for e in evaluations]
    return [evaluations[i] for i in find_undominated(points)]


def pick(evaluations: Sequence[Evaluation], objectives: Sequence[str], how: str) -> Evaluation:
    """A named pick from the Pareto set; one of the objectives is `score`.

    score: the best score. cheapest: the best other objective (the first of them) among those that score at least as
    well as the baseline (the first evaluation). knee: the point farthest from the line between the ends, in the first
    two objectives; of two points or one, the better score.
    """
    front = pareto_set(evaluations, objectives)
    if how == "cheapest":
        cost = next(o for o in objectives if o != "score")
        good = [e for e in front if e.score >= evaluations[0].score]
        return max(good, key=lambda e: (objective_sign(cost) * e.objectives[cost], e.score))
    if how == "knee" and len(front) > 2:
        return max(front, key=lambda e: _height(e, front, objectives))
    return max(front, key=lambda e: e.score)


def _height(point: Evaluation, front: Sequence[Evaluation], objectives: Sequence[str]) -> float:
    """Distance gained over the line between the two ends, with both axes scaled to [0, 1]."""
    scaled: list[float] = []
    for objective in objectives[:2]:
        values = [objective_sign(objective) * e.objectives[objective] for e in front]
        width = (max(values) - min(values)) or 1.0
        scaled.append((objective_sign(objective) * point.objectives[objective] - min(values)) / width)
    return sum(scaled)

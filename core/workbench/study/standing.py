"""The ranking of the evaluated candidates: the best so far, the Pareto set, and named picks from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from workbench.study.evaluation import Evaluation, mean_score
from workbench.workflow import Workflow


@dataclass
class Progress:
    """Shared state of all studies of a run: the candidates so far, the best of them, and callbacks.

    complete: evaluations on the whole val split, by workflow hash. tried: all candidates, by hash, in order.
    """

    on_candidate: Callable[[Workflow, str], None]
    on_evaluation: Callable[[Evaluation], Awaitable[None]]
    best: Evaluation | None = None
    complete: dict[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    tried: dict[str, Workflow] = field(default_factory=dict[str, Workflow])
    on_note: Callable[[str, str, Mapping[str, Any]], None] = lambda optimizer, message, figures: None
    on_rows: Callable[[Evaluation], None] = lambda evaluation: None  # on rows that an optimizer chose
    memo: dict[tuple[str, ...], Any] = field(default_factory=dict[tuple[str, ...], Any])  # of plugins, for a whole run
    stored: Callable[[Workflow], Evaluation | None] | None = None  # on val, by an earlier process of this run
    used: Fraction | None = None  # largest share of its workflow's most calls that a row of val has taken
    shortfall: dict[str, int] = field(default_factory=dict[str, int])  # least amount, by ceiling, to evaluate one more

    def apart(self, on_evaluation: Callable[[Evaluation], Awaitable[None]]) -> Progress:
        """Return the progress of a search on other rows, whose evaluations cannot win the run."""
        return replace(self, on_evaluation=on_evaluation, best=None, complete={}, tried={}, stored=None)

    def propose(self, workflow: Workflow, optimizer: str) -> None:
        """Note an optimizer's candidate before it is evaluated."""
        self.on_candidate(workflow, optimizer)
        self.tried.setdefault(workflow.hash, workflow)

    def add(self, evaluation: Evaluation) -> None:
        """Add a complete evaluation on val, without its traces."""
        lean = replace(evaluation, results=tuple(replace(r, trace=None) for r in evaluation.results))
        self.complete[evaluation.workflow.hash] = lean
        if declared := evaluation.workflow.max_calls:
            self.used = max(self.used or Fraction(0), min(Fraction(1), Fraction(evaluation.max_calls, declared)))
        # max takes the first of equals, so a tie keeps the earlier, simpler candidate
        best = max(fill_missing([*self.complete.values()]), key=lambda e: e.score, default=None)
        self.best = None if best is None else self.complete[best.workflow.hash]


def fill_missing(evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
    """Return the evaluations, all of the same rows, with a score for each row. A row without a result gets the mean of
    the other candidates' scores there, or of its own evaluation if there are none. Otherwise a candidate that loses its
    hard rows, to a timeout or a judge, would rank above candidates that answer them."""
    lost = sorted({place for one in evaluations for place in one.lost})
    rows = {place: mean_score(one.results[place] for one in evaluations) for place in lost}

    def filled(one: Evaluation) -> Evaluation:
        results = list(one.results)
        for place in one.lost:
            known = rows[place]
            results[place] = replace(results[place], score=one.score if known is None else known)
        made = replace(one, results=tuple(results))
        made.__dict__["objectives"] = {**one.objectives, "score": made.score}  # costs: of rows with a result
        return made

    return [filled(one) if one.lost else one for one in evaluations] if lost else evaluations


def objective_sign(objective: str) -> float:
    """Return +1 if more is better (score), -1 if less is (usd, tokens, latency, calls)."""
    return 1.0 if objective == "score" else -1.0


def find_undominated(points: Sequence[tuple[float, ...]]) -> list[int]:
    """Return the positions of the points that no other dominates (more is better). Sorted by the first value, best
    first; of equal points only the earliest is kept."""

    def beaten(i: int) -> bool:
        for j, other in enumerate(points):
            if all(a >= b for a, b in zip(other, points[i], strict=True)):
                if any(a > b for a, b in zip(other, points[i], strict=True)) or j < i:
                    return True
        return False

    kept = [i for i in range(len(points)) if not beaten(i)]
    return sorted(kept, key=lambda i: points[i], reverse=True)


def pareto_set(evaluations: Sequence[Evaluation], objectives: Sequence[str]) -> list[Evaluation]:
    """Return the evaluations that no other dominates, in the order of `find_undominated`."""
    points = [tuple(objective_sign(o) * e.objectives[o] for o in objectives) for e in evaluations]
    return [evaluations[i] for i in find_undominated(points)]


def pick(evaluations: Sequence[Evaluation], objectives: Sequence[str], how: str) -> Evaluation:
    """Pick an evaluation from the Pareto set by a named rule. One of the objectives is `score`.

    score: the best score. cheapest: the best other objective (the first of them) among those that score at least as
    well as the baseline (the first evaluation). knee: the point farthest from the line between the ends, in the first
    two objectives; with one or two points, the better score.
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
    """Return the distance gained over the line between the two ends, with both axes scaled to [0, 1]."""
    scaled: list[float] = []
    for objective in objectives[:2]:
        values = [objective_sign(objective) * e.objectives[objective] for e in front]
        width = (max(values) - min(values)) or 1.0
        scaled.append((objective_sign(objective) * point.objectives[objective] - min(values)) / width)
    return sum(scaled)

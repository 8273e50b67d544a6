"""Service levels: the cheapest candidate that meets the targets of a file, and faster ones for times of high load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.errors import FailureKind
from workbench.spec import Spec, TargetsSpec
from workbench.study.evaluation import Evaluation, Result
from workbench.study.standing import fill_missing, objective_sign, pareto_set, pick
from workbench.workflow import Workflow

#: Share of rows that may take longer than `p95_latency`.
SLOW_SHARE = 0.05

#: Costs by which the cheapest candidate is chosen: the first that the objectives name, else the first that differs
#: between candidates.
_COSTS = ("usd", "tokens", "calls")


def is_slow(result: Result, limit: float) -> bool:
    """Return True if a row took longer than the limit, timed out, or has no result, however fast it failed."""
    return result.seconds > limit or result.failure == FailureKind.TIMEOUT or result.score is None


def cost_objective(evaluations: Sequence[Evaluation], objectives: Sequence[str]) -> str:
    """Return the objective by which the cheapest candidate is chosen."""
    for name in _COSTS:
        if name in objectives:
            return name
    for name in _COSTS:
        if len({e.objectives[name] for e in evaluations}) > 1:
            return name
    return "tokens"


def pick_winner(evaluations: Sequence[Evaluation], spec: Spec) -> Evaluation:
    """Return the winner among complete evaluations on val, the first of which is the baseline. It has the best score;
    with several objectives it is the named pick of the Pareto set; with targets the cheapest that meets them."""
    evaluations = fill_missing(evaluations)
    if (aims := Aims.of(spec, evaluations)) is not None:
        return pick_by_targets(evaluations, aims, spec.objectives)
    if len(spec.objectives) > 1:
        return pick(evaluations, spec.objectives, spec.pick)
    return max(evaluations, key=lambda e: e.score)


@dataclass(frozen=True)
class Aims:
    """The requirements for a candidate on val.

    targets: from the file. best: the best score among all candidates. margin: how far below the best a candidate may
    score; None: only the target for the score counts.
    """

    targets: TargetsSpec
    best: Evaluation
    margin: float | None = None

    @classmethod
    def of(cls, spec: Spec, evaluations: Sequence[Evaluation]) -> Aims | None:
        """Return the aims of a file with targets."""
        best = max(evaluations, key=lambda e: e.score)
        return None if spec.targets is None else cls(spec.targets, best, spec.margin_of_targets)

    def shortfalls(self, evaluation: Evaluation, room: float = 0.0) -> dict[str, float]:
        """Return how far each missed target is missed, as a fraction of its limit. `margin` is the one against the best
        score. room: standard errors by which a target must be met."""
        found: dict[str, float] = {}
        for name, limit in self.targets.given.items():
            by = objective_sign(name) * (limit - evaluation.objectives[name]) / limit
            if name == "p95_latency":
                by = max(by, _slow_share(evaluation, limit, room) - SLOW_SHARE)
            else:
                by += room * _standard_error(_values(evaluation, name)) / limit
            found[name] = by
        if self.margin is not None:
            lost = [a - b for a, b in zip(self.best.scores, evaluation.scores, strict=True)]
            loss = math.fsum(lost) / max(1, len(lost))
            found["margin"] = loss - self.margin + room * _standard_error(lost)
        return {name: by for name, by in found.items() if by > 1e-12}


def pick_by_targets(evaluations: Sequence[Evaluation], aims: Aims, objectives: Sequence[str]) -> Evaluation:
    """Return the cheapest candidate that meets all targets on val by one standard error; of equals the best.

    A candidate that only just meets a target on val often misses it on other rows: of several such candidates, the
    cheapest is the luckiest. Hence the standard error (the rule of Breiman et al., Classification and Regression Trees,
    1984, section 3.4.3, where it picks the simplest tree). If no candidate has that much room, the one with the
    smallest sum of shortfalls is taken. That sum is 0 if it meets the targets by its values, and then it is one of the
    Pareto set.

    Args:
        evaluations: complete ones on val.
        aims: the requirements.
        objectives: those of the file. The first cost among them decides which candidate is cheapest.
    """
    cost = cost_objective(evaluations, objectives)

    def cheapness(evaluation: Evaluation) -> tuple[float, float]:
        return (evaluation.objectives[cost], -evaluation.score)

    if meeting := [e for e in evaluations if not aims.shortfalls(e, room=1.0)]:
        return min(meeting, key=cheapness)
    return min(evaluations, key=lambda e: (sum(aims.shortfalls(e).values()), *cheapness(e)))


def _slow_share(evaluation: Evaluation, limit: float, room: float) -> float:
    """Return the share of rows that took too long, plus `room` standard errors of a share of SLOW_SHARE."""
    n = max(1, len(evaluation.results))
    error = math.sqrt(SLOW_SHARE * (1 - SLOW_SHARE) / n)
    return sum(is_slow(result, limit) for result in evaluation.results) / n + room * error


def _values(evaluation: Evaluation, objective: str) -> list[float]:
    if objective == "score":
        return evaluation.scores
    return [getattr(result, "seconds" if objective == "latency" else objective) for result in evaluation.results]


def _standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 for one value."""
    n = len(values)
    if n < 2:
        return 0.0
    mean = math.fsum(values) / n
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)


def configurations(workflow: Workflow, evaluations: Mapping[str, Evaluation], spec: Spec) -> list[Evaluation]:
    """Return a workflow and the faster ones that `serve` may use when requests have to wait.

    The faster ones are those of the Pareto set that meet each target on val, cheapest first. Returns an empty list if
    there are none, or without a target of time. evaluations: complete ones on val, by hash.
    """
    chosen, targets, found = evaluations.get(workflow.hash), spec.targets, list(evaluations.values())
    if chosen is None or targets is None or (targets.p95_latency is None and targets.latency is None):
        return []
    cost = cost_objective(found, spec.objectives)
    aims = Aims.of(spec, found)
    faster = [
        e
        for e in pareto_set(found, ["latency", "score", cost])
        if e.objectives["latency"] < chosen.objectives["latency"] and aims is not None and not aims.shortfalls(e)
    ]
    faster.sort(key=lambda e: (e.objectives[cost], e.objectives["latency"]))
    return [chosen, *faster] if faster else []

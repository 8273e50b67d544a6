"""Costs of a row: its maximum, and the test that the winner's rows cost less.

A mean of costs cannot be tested without a bound: one row in a hundred may loop and cost more than all others, and a
sample may miss it. So the bound is the worst case of a row: all the calls that it may make, each at its worst.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.proof.bounded_mean import mean_interval, two_sided_mean_p
from workbench.proof.claim import LEVEL, Claim, Kind
from workbench.proof.statistics import cluster_means
from workbench.study import Result
from workbench.workflow import CallRecord, Workflow

#: The field of a result with the cost of an objective.
COST_FIELDS = {"usd": "usd", "tokens": "tokens", "calls": "calls", "latency": "seconds"}

#: If no bound is known, assume that no row costs more than this many times the most expensive one observed.
UNSEEN = 10.0


@dataclass(frozen=True)
class Ceiling:
    """The most that a row can cost, and the source of that bound."""

    most: float
    why: str

    def __str__(self) -> str:
        return f"at most {self.most:.4g} a row, {self.why}"


def find_ceilings(
    sides: Sequence[tuple[Workflow, Sequence[Result]]], declared: Mapping[str, float]
) -> dict[str, Ceiling]:
    """Return the ceiling of each cost, by objective.

    Args:
        sides: the tested workflows with their results, which have traces.
        declared: ceilings of the file (`proof: {ceiling: ...}`). One that a row has exceeded is ignored.
    """
    seen = {o: max((float(getattr(r, f)) for _, rs in sides for r in rs), default=0.0) for o, f in COST_FIELDS.items()}
    found: dict[str, Ceiling] = {}
    for name, most in seen.items():
        known = max((_worst_row(name, workflow, results) for workflow, results in sides), default=math.inf)
        if most <= declared.get(name, -1.0):
            worst = f"; its calls could cost {known:.4g}" if declared[name] < known < math.inf else ""
            found[name] = Ceiling(declared[name], f"by proof: {{ceiling: ...}}{worst}")
        elif most <= known < math.inf:
            found[name] = Ceiling(known, "the worst case of its calls")
        else:
            found[name] = Ceiling(
                UNSEEN * most, f"{UNSEEN:g} times the most expensive row observed, as no bound is known"
            )
    return found


def _worst_row(objective: str, workflow: Workflow, results: Sequence[Result]) -> float:
    """Return a row's cost if it made all the calls that it may, each with the longest prompt seen, all earlier answers,
    and the longest answer; infinite if unknown."""
    calls = [call for result in results if result.trace is not None for call in result.trace.calls]
    if objective == "calls":
        return float(workflow.max_calls)
    if not calls or any(result.trace is None for result in results):
        return math.inf
    worst, times = max(_worst_call(objective, call) for call in calls), workflow.max_calls
    if objective == "tokens":  # a prompt may contain all earlier answers
        worst += max(call.max_tokens for call in calls) * (times - 1) / 2
    elif objective == "usd" and times > 1:
        worst *= 1 + (times - 1) / 2
    return times * worst


def _worst_call(objective: str, call: CallRecord) -> float:
    if call.response.completion_tokens > call.max_tokens and objective != "latency":
        return math.inf  # its server exceeds the limit of tokens that it was given
    if objective == "tokens":
        return call.response.prompt_tokens + call.max_tokens
    if objective == "usd":
        return math.inf if call.max_usd is None else max(call.max_usd, call.usd)
    return call.max_seconds or math.inf


def describe_saving(saving: Claim, *, shown: bool) -> str:
    """Describe the costs of a row on both sides, in a sentence. Dollars are given per 1,000 rows, since those of one
    row are too small to read."""
    unit, times, each = ("$", 1000, "per 1,000 rows") if saving.of == "usd" else ("", 1, "a row")
    whose = {"usd": "It costs", "latency": "It takes"}.get(saving.of, f"Its {saving.of} are")
    share = saving.diff / saving.baseline if saving.baseline else 0.0
    verdict = "" if share > 0 else f"; the saving is {'shown' if shown else 'not shown'}"
    low, high = (end * times for end in saving.ci95)
    return (
        f"It was picked by score and cost. {whose} {abs(share):.0%} {'more' if share > 0 else 'less'}: "
        f"{unit}{saving.baseline * times:.4g} -> {unit}{saving.winner * times:.4g} {each} (difference "
        f"{low:+.4g} to {high:+.4g}, p = {saving.p:.2g}; at most {unit}{saving.most * times:.4g} {each}, "
        f"{saving.bound}){verdict}."
    )


def _words(claim: Claim, shown: bool, why: str | None) -> list[str]:
    text = describe_saving(claim, shown=shown)
    return [f"{text} It is cheaper, but {why}" if why is not None else text]


def _figures(claim: Claim, shown: bool) -> dict[str, Any]:
    return {
        "objective": claim.of,
        "n": claim.n,
        "baseline_mean": claim.baseline,
        "winner_mean": claim.winner,
        "diff": claim.diff,
        "ci95": claim.ci95,
        "p": claim.p,
        "shown": shown,
        "most": claim.most,
        "bound": claim.bound,
    }


#: A saving: diff is below 0 if the winner is cheaper. The test is that of graded scores, with costs scaled by the most
#: that a row can cost.
SAVING = Kind(_words, _figures, keeps_score=True)


def paired_saving(
    objective: str,
    baseline: Sequence[float],
    winner: Sequence[float],
    ceiling: Ceiling,
    *,
    clusters: Sequence[Hashable] | None = None,
    alpha: float = LEVEL,
) -> Claim:
    """Compare paired costs, one per row and side, from 0 to the ceiling. clusters, alpha: as in `paired_proof`."""
    scale = max([ceiling.most, *baseline, *winner])
    if scale <= 0:
        return Claim("saving", SAVING, len(baseline), of=objective, most=0.0)
    keys = range(len(baseline)) if clusters is None else clusters
    units = cluster_means([(k, b / scale, a / scale) for k, a, b in zip(keys, baseline, winner, strict=True)])
    saved = [round(a - b, 12) for b, a in units]
    p = two_sided_mean_p(saved)
    low, high = mean_interval(saved, -1.0, 1.0)
    means = [float(scale * math.fsum(side) / len(units)) for side in zip(*units, strict=True)]
    return Claim(
        "saving",
        SAVING,
        len(units),
        means[1],
        means[0],
        means[0] - means[1],
        (-scale * high, -scale * low),
        p,
        math.fsum(saved) > 0 and p < alpha and low > 0,
        of=objective,
        alpha=alpha,
        most=scale,
        bound=ceiling.why,
    )

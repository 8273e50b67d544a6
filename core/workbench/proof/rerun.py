"""Runs of the old workflow at the winner's cost, and their majority vote.

A winner may cost several times what the baseline does. If it does not beat the vote of that many runs, it is only an
expensive way to ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from workbench.base.hashing import canonical
from workbench.proof.statistics import paired_proof
from workbench.study import Result, score_of

#: A test whether two answers to a row are alike.
Alike = Callable[[Result, Result], bool]

#: The most runs of the old workflow on a row.
MAX_RUNS = 16


class Rerun(NamedTuple):
    """The comparison of a winner with reruns. runs: of the old workflow on a row, for the winner's cost in `unit`.
    rows: with a score of all of them. vote: mean of the most frequent answers. best: mean of the best answers, if they
    were known. diff, ci95: winner minus vote, on the same rows."""

    runs: int
    unit: str
    rows: int
    vote: float
    best: float
    diff: float
    ci95: tuple[float, float]

    def describe(self) -> str:
        """Return a line for the report."""
        low, high = self.ci95
        return (
            f"The old workflow, run {self.runs} times a row for the same {self.unit}: its vote has {self.vote:.3f}, "
            f"the best of its answers {self.best:.3f}; the winner is {self.diff:+.3f} [{low:+.3f}, {high:+.3f}] above "
            f"the vote, on {self.rows} rows."
        )


def count_runs(pairs: Sequence[tuple[Result, Result]]) -> tuple[int, str]:
    """Return (runs of the first side for the cost of the second one, unit): dollars if all calls have a price, else
    tokens, else calls; (1, "") if the second side costs less than twice as much."""
    priced = all(one.usd > 0 for pair in pairs for one in pair if one.calls)
    for unit, name in (("usd", "dollars"), ("tokens", "tokens"), ("calls", "calls"))[not priced :]:
        old, new = (sum(getattr(pair[side], unit) for pair in pairs) for side in (0, 1))
        if old > 0 and new > 0:
            runs = min(MAX_RUNS, int(new / old + 1e-9))
            return (runs, name) if runs > 1 else (1, "")
    return 1, ""


def compare_reruns(
    reruns: Sequence[Sequence[Result]],
    winners: Sequence[Result],
    unit: str,
    *,
    alike: Alike,
    clusters: Sequence[Hashable] | None = None,
    highest: float = 1.0,
) -> Rerun | None:
    """Compare a winner with the votes of several runs of the old workflow, a sequence for each row. Returns None if on
    no row all of them and the winner have a score.

    Args:
        alike: returns True if two answers count as one, see `alike_by`.
        clusters, highest: as in `paired_proof`.
    """
    keys = range(len(winners)) if clusters is None else clusters
    rows = [
        (key, runs, winner)
        for key, runs, winner in zip(keys, reruns, winners, strict=True)
        if all(one.score is not None for one in (*runs, winner))
    ]
    if not rows:
        return None
    votes, best = [vote_of(runs, alike) for _, runs, _ in rows], [max(map(score_of, runs)) for _, runs, _ in rows]
    given, scores = [key for key, _, _ in rows], [winner.score for _, _, winner in rows]
    found = paired_proof(votes, scores, clusters=given, highest=highest)
    most = paired_proof(best, scores, clusters=given, highest=highest).baseline
    return Rerun(len(rows[0][1]), unit, len(rows), found.baseline, most, found.diff, found.ci95)


def vote_of(runs: Sequence[Result], alike: Alike) -> float:
    """Return the score of the most frequent answer of runs with scores; of equally frequent ones, the first. A failure
    has no vote unless all runs failed."""
    groups = list[list[Result]]()
    for one in runs:
        if one.failure is not None:
            continue
        known = next((group for group in groups if alike(group[0], one)), None)
        if known is None:
            groups.append([one])
        else:
            known.append(one)
    return score_of(max(groups, key=len)[0]) if groups else 0.0


def any_agree(reruns: Sequence[Sequence[Result]], alike: Alike) -> bool:
    """Return True if any two answers to a row are alike; otherwise there is no vote."""
    answered = [[one for one in runs if one.failure is None] for runs in reruns]
    return any(alike(a, b) for runs in answered for n, a in enumerate(runs) for b in runs[n + 1 :])


def alike_by(metric: Any) -> Alike:
    """Return a function that compares two answers. They are alike if they are equal in the field that the metric
    compares, or in all fields if it names none, or if the metric accepts one for the other."""
    field, compare = getattr(metric, "field", None), getattr(metric, "compare", None)

    def alike(one: Result, other: Result) -> bool:
        a, b = (result.prediction.get(field or "", dict(result.prediction)) for result in (one, other))
        if canonical(a) == canonical(b):
            return True
        with suppress(Exception):  # of a metric that cannot compare these values
            return compare is not None and compare(a, b).value == 1
        return False

    return alike

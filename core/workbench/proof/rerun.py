"""What the winner's money buys from the old workflow: as many runs of it, of which a vote decides.

A winner may cost several times what the baseline does. One that is not above the vote of so many runs is a dear way to
ask again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from workbench.base.hashing import canonical
from workbench.proof.statistics import paired_proof
from workbench.study import Result

#: Runs of the old workflow on a row, at most.
MOST_RUNS = 16


class Rerun(NamedTuple):
    """runs: of the old workflow on a row, for what the winner takes of `unit`. rows: with a score of all of them.
    vote: mean of the most frequent answers. best: mean of the best answers, if one knew which they are. diff, ci95: of
    the winner above the vote, on the same rows."""

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
    """(runs of the first side for what the second one takes, in what): dollars, where both sides cost some, or else
    tokens, or else calls; (1, "") where the second side takes less than twice as much."""
    for unit, name in (("usd", "dollars"), ("tokens", "tokens"), ("calls", "calls")):
        old, new = (sum(getattr(pair[side], unit) for pair in pairs) for side in (0, 1))
        if old > 0 and new > 0:
            runs = min(MOST_RUNS, int(new / old + 1e-9))
            return (runs, name) if runs > 1 else (1, "")
    return 1, ""


def compare_reruns(reruns: Sequence[Sequence[Result]], winners: Sequence[Result], unit: str) -> Rerun | None:
    """Compare a winner with the votes of several runs of the old workflow, a sequence for each row. None without a row
    on which all of them, and the winner, have a score."""
    rows = [
        (runs, winner)
        for runs, winner in zip(reruns, winners, strict=True)
        if all(one.score is not None for one in (*runs, winner))
    ]
    if not rows:
        return None
    votes = [vote_of(runs) for runs, _ in rows]
    best = [max(one.score or 0.0 for one in runs) for runs, _ in rows]
    proof = paired_proof(votes, [winner.score for _, winner in rows])
    mean = sum(best) / len(best)
    return Rerun(len(rows[0][0]), unit, len(rows), proof.baseline_mean, mean, proof.diff, proof.ci95)


def vote_of(runs: Sequence[Result]) -> float:
    """The score of the most frequent answer of runs with scores; of equals, of the one that came first. A failure has
    no vote, unless all failed."""
    answers = defaultdict[str, list[float]](list)
    for one in runs:
        if one.failure is None:
            answers[canonical(dict(one.prediction))].append(one.score or 0.0)
    return max(answers.values(), key=len)[0] if answers else 0.0

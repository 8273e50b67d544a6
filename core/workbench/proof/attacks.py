"""Attacks on the sealed rows: does the winner let more of them succeed than the baseline?"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.proof.sides import Pair
from workbench.proof.statistics import cluster_means, interval, paired_proof
from workbench.study import Result


@dataclass(frozen=True)
class AttackRise:
    """The rise of the attack rate, the share of attacks that succeed, from the baseline to the winner.

    Attributes:
        baseline, winner: the rates; their intervals of 95%.
        rise, ci95: the difference on the rows of both, and its interval.
        highest: the upper end of the interval at the level of the test, in the worst case for rows that one side alone
            answered. margin: the rise that it must rule out.
        n: units: clusters of rows.
    """

    baseline: float
    winner: float
    baseline_interval: tuple[float, float]
    winner_interval: tuple[float, float]
    rise: float
    ci95: tuple[float, float]
    highest: float
    margin: float
    n: int

    @property
    def ruled_out(self) -> bool:
        """Return True if a rise of the margin or more is ruled out, with alpha / 2 for an error."""
        return self.n > 0 and self.highest < self.margin

    def __str__(self) -> str:
        (a, b), (c, d) = self.baseline_interval, self.winner_interval
        low, high = self.ci95
        return (
            f"attacks succeed on {self.baseline:.3f} [{a:.3f}, {b:.3f}] with the baseline and on {self.winner:.3f} "
            f"[{c:.3f}, {d:.3f}] with the winner, {self.rise:+.3f} [{low:+.3f}, {high:+.3f}]"
        )

    @property
    def objection(self) -> str | None:
        """Why no gain is shown; None if there is no such reason."""
        if self.ruled_out:
            return None
        few = "" if self.rise >= self.margin else f" on {self.n} rows: use more test rows"
        return f"{self}; a rise of {self.margin:g} is not ruled out{few}"

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "ruled_out": self.ruled_out}


def measure_rise(
    pairs: Sequence[Pair], clusters: Sequence[Hashable], *, margin: float, alpha: float
) -> AttackRise | None:
    """The rise of the attack rate on sealed rows, each of which counts with the mean of its attacks; None if no row was
    attacked."""
    if not any(a.attacked and b.attacked for a, b in pairs):
        return None
    rates = [(_rate(a), _rate(b)) for a, b in pairs]
    sides = [[None if rate is None else 1 - rate for rate in side] for side in zip(*rates, strict=True)]
    found = paired_proof(*sides, clusters=clusters, alpha=alpha, margin=margin)
    known = [(key, a, b) for key, (a, b) in zip(clusters, rates, strict=True) if a is not None and b is not None]
    means = cluster_means(known)
    before, after = [a for a, _ in means], [b for _, b in means]
    low, high = found.ci95
    return AttackRise(
        1 - found.baseline_mean if means else 0.0,
        1 - found.winner_mean if means else 0.0,
        interval(before),
        interval(after),
        0.0 - found.diff,
        (0.0 - high, 0.0 - low),
        0.0 - found.lowest,
        margin,
        found.n,
    )


def few_rows_for_attacks(margin: float, rows: int) -> list[str]:
    """A warning if this number of sealed rows cannot rule out the rise, even if no attack succeeds on any of them."""
    if not rows or -paired_proof([1.0] * rows, [1.0] * rows).lowest < margin:
        return []
    return [
        f"{rows} sealed rows cannot rule out that the attack rate rises by {margin:g}, even if no attack succeeds on "
        "them: no gain would be shown. Use more test rows, or a larger constraints.attack"
    ]


def _rate(result: Result) -> float | None:
    """The share of the attacks on a row that succeeded; None if none was answered."""
    known = [float(one.succeeded) for one in result.attacked.values() if one.succeeded is not None]
    return math.fsum(known) / len(known) if known else None

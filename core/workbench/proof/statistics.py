"""The statistics of the proof: is the winner better than the baseline on the sealed test rows?

Both sides ran on the same rows, so all tests are paired. Nothing is drawn at random. numpy is imported on first use.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.base.distributions import find_root, normal_quantile
from workbench.proof.bounded_mean import mean_interval, mean_p, two_sided_mean_p
from workbench.proof.claim import LEVEL, MARGIN, Claim, Kind
from workbench.proof.paired_binary import (
    critical_value,
    mcnemar_p,
    score_interval,
    smallest_binary_gain,
    tango_interval,
)

#: Names of the tests, as in reports.
MCNEMAR = "McNemar, exact unconditional"
BOUNDED_MEAN = "mean of bounded differences"


def paired_proof(
    baseline: Sequence[float | None],
    winner: Sequence[float | None],
    *,
    clusters: Sequence[Hashable] | None = None,
    alpha: float = LEVEL,
    margin: float = MARGIN,
    highest: float = 1.0,
) -> Claim:
    """Compare paired scores in [0, highest].

    Args:
        baseline, winner: one score per row, None where infrastructure failed.
        clusters: one key per row. Rows with equal keys count once, with their mean score. Default: each row by itself.
        alpha, margin: the level of the test, and the loss to rule out.
        highest: score of the metric. The lowest is 0, that of a failure.

    Raises:
        ValueError: lengths differ, or a score is not in [0, highest].
    """
    if len(baseline) != len(winner) or (clusters is not None and len(clusters) != len(baseline)):
        raise ValueError(f"scores must be paired: {len(baseline)} against {len(winner)}")
    keys = range(len(baseline)) if clusters is None else clusters
    rows = list(zip(keys, baseline, winner, strict=True))
    answered = [(key, a, b) for key, a, b in rows if a is not None and b is not None]
    one_sided = sum((a is None) != (b is None) for _, a, b in rows)
    if not answered:
        return Claim("gain", GAIN, n_excluded=len(rows), n_one_sided=one_sided, alpha=alpha)
    found = _compare(cluster_means(answered, highest), highest)
    shown, interval_, lowest = found.is_beyond_chance(alpha), found.interval, found.low(alpha)
    if one_sided:
        worst, best = _extremes(rows, highest)
        shown = shown and worst.is_beyond_chance(alpha)
        interval_ = (min(worst.interval[0], interval_[0]), max(best.interval[1], interval_[1]))
        lowest = min(worst.low(alpha), lowest)
    return found.as_proof(
        n_rows=len(answered),
        n_excluded=len(rows) - len(answered),
        ci95=interval_,
        shown=shown,
        n_one_sided=one_sided,
        alpha=alpha,
        lowest=lowest,
        margin=margin,
    )


def _extremes(
    rows: Sequence[tuple[Hashable, float | None, float | None]], highest: float
) -> tuple[_Comparison, _Comparison]:
    """Compare with the worst scores for rows that only one side answered, and with the best."""
    ends = ((highest, 0.0), (0.0, highest))
    worst, best = (_compare(cluster_means(_completed(rows, *end), highest), highest) for end in ends)
    return worst, best


def _completed(
    rows: Sequence[tuple[Hashable, float | None, float | None]], baseline: float, winner: float
) -> list[tuple[Hashable, float, float]]:
    """Return the rows that at least one side answered, with these scores for the other."""
    return [
        (key, baseline if a is None else a, winner if b is None else b)
        for key, a, b in rows
        if a is not None or b is not None
    ]


@dataclass(frozen=True)
class _Comparison:
    differences: list[float]
    means: tuple[float, float]
    diff: float
    interval: tuple[float, float]
    p: float
    test: str
    highest: float

    def as_proof(self, *, alpha: float, **more: Any) -> Claim:
        """Make the claim. more: the fields that depend on rows without an answer."""
        n, wins = len(self.differences), sum(d > 0 for d in self.differences)
        losses = sum(d < 0 for d in self.differences)
        return Claim(
            "gain",
            GAIN,
            n=n,
            baseline=self.means[0],
            winner=self.means[1],
            diff=self.diff,
            p=self.p,
            test=self.test,
            wins=wins,
            losses=losses,
            ties=n - wins - losses,
            smallest_gain=_smallest_gain(self.differences, self.test == MCNEMAR, alpha, self.highest),
            alpha=alpha,
            **more,
        )

    def is_beyond_chance(self, alpha: float) -> bool:
        return self.diff > 0 and self.p < alpha and self.interval[0] > 0

    def low(self, alpha: float) -> float:
        """Return the lower end of the interval at the level 1 - alpha. For 0/1 scores it is Tango's, since the critical
        value is exact only at 0, and a margin is not 0."""
        if self.test == MCNEMAR:
            wins, losses = self.differences.count(1.0), self.differences.count(-1.0)
            return tango_interval(wins, losses, len(self.differences), 1 - alpha)[0]
        if alpha == LEVEL:
            return self.interval[0]
        return mean_interval(self.differences, -self.highest, self.highest, 1 - alpha)[0]


def cluster_means(rows: Sequence[tuple[Hashable, float, float]], highest: float = 1.0) -> list[tuple[float, float]]:
    """Return the mean scores of each cluster, in the order of their first rows."""
    found: dict[Hashable, list[tuple[float, float]]] = {}
    for key, a, b in rows:
        if not (0 <= a <= highest and 0 <= b <= highest):
            raise ValueError(
                f"scores must be numbers in [0, {highest:g}]; write None for a row that could not be scored"
            )
        found.setdefault(key, []).append((a, b))
    return [
        (math.fsum(a for a, _ in pairs) / len(pairs), math.fsum(b for _, b in pairs) / len(pairs))
        for pairs in found.values()
    ]


def _compare(units: Sequence[tuple[float, float]], highest: float) -> _Comparison:
    n = len(units)
    differences = [round(b - a, 12) for a, b in units]  # 0.3 - 0.2 and 0.2 - 0.1 are a tie
    means = (math.fsum(a for a, _ in units) / n, math.fsum(b for _, b in units) / n)
    diff = math.fsum(differences) / n
    if all(value in (0.0, 1.0) for unit in units for value in unit):
        wins, losses = differences.count(1.0), differences.count(-1.0)
        test, p = MCNEMAR, mcnemar_p(wins, losses, n)
        ends = score_interval(wins, losses, n, critical_value(n, LEVEL))
    else:
        test, p = BOUNDED_MEAN, two_sided_mean_p(differences, highest)
        ends = mean_interval(differences, -highest, highest)
    return _Comparison(differences, means, diff, ends, p, test, highest)


# What a test of this size can show


def _smallest_gain(differences: Sequence[float], binary: bool, alpha: float, highest: float) -> float | None:
    """Return the true gain that this test shows with 80% power, or None.

    For 0/1 scores: from the exact power of the test, at the observed share of discordant pairs (at least 5 pairs, so
    that few changes do not look like certainty), or at the gain itself if that is larger. Otherwise: the gain that a
    sample of this shape still shows with its mean 0.84 standard errors too low.
    """
    n = len(differences)
    if binary:
        return smallest_binary_gain(n, max(sum(d != 0 for d in differences), 5) / n, alpha)
    mean = math.fsum(differences) / n
    deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / max(1, n - 1))
    if deviation < 1e-9:
        return None

    def excess(gain: float) -> float:
        return mean_p([d - mean + gain for d in differences], -highest) - alpha / 2

    if excess(highest) > 0:
        return None
    gain = find_root(excess, 0.0, highest) + normal_quantile(0.8) * deviation / math.sqrt(n)
    return gain if gain <= highest else None


# One side alone


def interval(scores: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return the interval of one mean: Wilson's for 0/1 scores, else that of `mean_interval`. (0, 1) for no scores."""
    n = len(scores)
    if not n:
        return 0.0, 1.0
    if not all(s in (0.0, 1.0) for s in scores):
        return mean_interval(scores, 0.0, 1.0, level)
    z, share = 1.959963984540054, math.fsum(scores) / n
    if level != 0.95:
        z = normal_quantile((1 + level) / 2)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def describe_gain(claim: Claim, shown: bool, why: str | None) -> list[str]:
    """Describe a gain. why: an objection that holds whatever the numbers."""
    return [voided(claim, why) if why is not None else describe_proof(claim)]


def voided(claim: Claim, why: str) -> str:
    """Describe a gain that does not count."""
    return f"The gain is not shown: {why}. Its score ({claim.diff:+.3f}) does not count."


def gain_figures(claim: Claim, shown: bool) -> dict[str, Any]:
    """List the figures of a gain by their keys in JSON."""
    return {
        "diff": claim.diff,
        "ci95": list(claim.ci95),
        "p": claim.p,
        "shown": shown,
        "test": claim.test,
        "n": claim.n,
        "rows": claim.n_rows,
        "excluded": claim.n_excluded,
        "one_sided": claim.n_one_sided,
        "alpha": claim.alpha,
        "smallest_gain": claim.smallest_gain,
    }


def _describe_plainly(claim: Claim, shown: bool, why: str | None) -> list[str]:
    if why is not None or not claim.n:
        return describe_gain(claim, shown, why)
    scores = f"Score {claim.baseline:.3f} -> {claim.winner:.3f} on {claim.n_rows} sealed row{'s' * (claim.n_rows > 1)}"
    verdict = f"{scores}: the gain is {'shown' if claim.shown else 'not shown'}"
    reason = _why_not_shown(claim)
    return [f"{verdict} [{claim.ci95[0]:+.3f}, {claim.ci95[1]:+.3f}]{f'; {reason}' if reason else ''}."]


#: A gain of the mean score.
GAIN = Kind(describe_gain, gain_figures, plain=_describe_plainly)


def describe_proof(proof: Claim) -> str:
    """Describe the proof in one sentence."""
    if not proof.n:
        return "The gain is not shown: no test row could be scored on both sides."
    rows = f"{proof.n_rows} sealed test row{'s' if proof.n_rows > 1 else ''}"
    if proof.n < proof.n_rows:
        rows += (
            f" in {proof.n} clusters, each of which counts once" if proof.n > 1 else " in 1 cluster, which counts once"
        )
    rows += f" ({proof.n_excluded} more left out)" if proof.n_excluded else ""
    numbers = f"{proof.diff_text}, p = {proof.p:.2g} ({proof.test})"
    if proof.shown:
        return f"The gain is shown: {numbers}, on {rows}."
    if not proof.wins and not proof.losses:
        return f"The gain is not shown: baseline and winner scored the same on each of {rows}."
    return f"The gain is not shown: {numbers}, on {rows}; {_why_not_shown(proof)}."


def _why_not_shown(proof: Claim) -> str:
    """Return the reason why a gain is not shown by its numbers; empty if it is."""
    if proof.shown:
        return ""
    if not proof.wins and not proof.losses:
        return "both scored the same on each row"
    if proof.diff > 0 and proof.p < proof.alpha and proof.n_one_sided:
        return (
            f"but {proof.n_one_sided} of those left out were answered by one side alone, and with the worst taken for "
            "the other it is not shown"
        )
    if proof.diff > 0 and proof.alpha <= proof.p < 0.05:
        return f"these rows were tested before, so p must be below {proof.alpha:.2g}"
    if proof.smallest_gain is None:
        shows = "only larger gains" if _can_show(proof) else "no gain"
        return f"a test of this size can show {shows}; use more test rows"
    return f"this test would have found a gain of about {proof.smallest_gain:.2g} in 4 of 5 cases"


def _can_show(proof: Claim) -> bool:
    """Return True if the largest gain, 1 on every unit, would be beyond chance."""
    best = mcnemar_p(proof.n, 0, proof.n) if proof.test == MCNEMAR else 2 * mean_p([1.0] * proof.n, -1.0)
    return best < proof.alpha

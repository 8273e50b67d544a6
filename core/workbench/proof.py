"""The statistics of the proof: is the winner better than the baseline on the sealed test rows?

Both sides ran on the same rows, so everything here is paired. numpy and scipy are imported when first needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RESAMPLES = 10_000


@dataclass(frozen=True)
class Proof:
    """A paired comparison.

    n: pairs that count; n_excluded: pairs left out because infrastructure failed on either side. diff: winner's mean
    minus baseline's, with a 95% bootstrap interval. p: two-sided, by `test`. shown: diff is above 0, p below alpha and
    the interval above 0. smallest_gain: the gain that a test of this size finds with 80% power, given how much the
    pairs scatter; None where they do not scatter at all.
    """

    n: int
    n_excluded: int
    baseline_mean: float
    winner_mean: float
    diff: float
    ci95: tuple[float, float]
    p: float
    test: str
    wins: int
    losses: int
    ties: int
    shown: bool
    smallest_gain: float


def paired_proof(
    baseline: Sequence[float | None], winner: Sequence[float | None], *, seed: int = 0, alpha: float = 0.05
) -> Proof:
    """Compare paired scores. None marks an infrastructure failure. Raises ValueError if the lengths differ."""
    if len(baseline) != len(winner):
        raise ValueError(f"scores must be paired: {len(baseline)} against {len(winner)}")
    pairs = [(a, b) for a, b in zip(baseline, winner, strict=True) if a is not None and b is not None]
    n = len(pairs)
    if not n:
        return Proof(0, len(baseline), 0.0, 0.0, 0.0, (0.0, 0.0), 1.0, "none", 0, 0, 0, False, 1.0)
    differences = [b - a for a, b in pairs]
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    binary = all(value in (0.0, 1.0) for pair in pairs for value in pair)
    p, test = _mcnemar(wins, losses) if binary else _wilcoxon(differences)
    interval_ = _bootstrap_mean(differences, seed)
    diff = math.fsum(differences) / n
    return Proof(
        n=n, n_excluded=len(baseline) - n, baseline_mean=math.fsum(a for a, _ in pairs) / n,
        winner_mean=math.fsum(b for _, b in pairs) / n, diff=diff, ci95=interval_, p=p, test=test, wins=wins,
        losses=losses, ties=n - wins - losses, shown=diff > 0 and p < alpha and interval_[0] > 0,
        smallest_gain=_smallest_gain(differences, wins + losses, binary, alpha),
    )  # fmt: skip


def _mcnemar(wins: int, losses: int) -> tuple[float, str]:
    """Exact two-sided McNemar: given the pairs that differ, wins are Binomial(wins + losses, 1/2)."""
    name = "McNemar, exact"
    if wins + losses == 0:
        return 1.0, name
    from scipy.stats import binomtest

    return float(binomtest(wins, wins + losses, 0.5).pvalue), name


def _wilcoxon(differences: Sequence[float]) -> tuple[float, str]:
    """Wilcoxon's signed ranks; pairs without a difference drop out. Exact for up to 50 pairs without ties."""
    name = "Wilcoxon signed-rank"
    nonzero = [d for d in differences if d]
    if not nonzero:
        return 1.0, name
    from scipy.stats import wilcoxon

    exact = len(nonzero) <= 50 and len({round(abs(d), 12) for d in nonzero}) == len(nonzero)
    result: Any = wilcoxon(nonzero, method="exact" if exact else "asymptotic", correction=not exact)
    return float(result.pvalue), f"{name}, {'exact' if exact else 'normal approximation'}"


def _bootstrap_mean(values: Sequence[float], seed: int) -> tuple[float, float]:
    """95% bootstrap interval of a mean, bias-corrected and accelerated (BCa; Efron 1987)."""
    import numpy as np
    from scipy.special import ndtr, ndtri

    data = np.asarray(values, dtype=float)
    n = len(data)
    if n < 2 or np.ptp(data) == 0:
        mean = float(data.mean())
        return mean, mean
    rng = np.random.default_rng(seed)
    means = np.concatenate([
        data[rng.integers(0, n, size=(1000, n))].mean(axis=1) for _ in range(RESAMPLES // 1000)
    ])  # fmt: skip
    below = (means < data.mean()).mean() + (means == data.mean()).mean() / 2  # half of the ties: scores are discrete
    bias = ndtri(min(max(below, 1 / RESAMPLES), 1 - 1 / RESAMPLES))
    jackknife = (data.sum() - data) / (n - 1)
    centred = jackknife.mean() - jackknife
    spread = (centred**2).sum() ** 1.5
    acceleration = (centred**3).sum() / (6 * spread) if spread else 0.0
    levels = []
    for z in (ndtri(0.025), ndtri(0.975)):
        levels.append(ndtr(bias + (bias + z) / (1 - acceleration * (bias + z))))
    low, high = np.quantile(means, levels)
    return float(low), float(high)


def _smallest_gain(differences: Sequence[float], discordant: int, binary: bool, alpha: float) -> float:
    """The true gain that this test would find with 80% power, by the normal approximation.

    For 0/1 scores at the share of discordant pairs that was seen (at least 5 pairs, so that few changes do not look
    like certainty): Connor 1987. Else from the standard deviation of the differences.
    """
    from scipy.special import ndtri

    n, z_alpha, z_power = len(differences), float(ndtri(1 - alpha / 2)), float(ndtri(0.8))
    if binary:
        share = max(discordant, 5) / n
        gain = share
        low, high = 0.0, min(1.0, share)
        for _ in range(60):  # the power grows with the gain: bisect
            gain = (low + high) / 2
            power = (gain * math.sqrt(n) - z_alpha * math.sqrt(share)) / math.sqrt(max(share - gain**2, 1e-12))
            low, high = (low, gain) if power > z_power else (gain, high)
        return min(1.0, gain)
    mean = math.fsum(differences) / n
    deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / max(1, n - 1))
    return min(1.0, (z_alpha + z_power) * deviation / math.sqrt(n))


def interval(scores: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """95% interval of one mean: Wilson's for 0/1 scores, else bootstrap. (0, 1) without scores."""
    n = len(scores)
    if not n:
        return 0.0, 1.0
    if not all(s in (0.0, 1.0) for s in scores):
        return _bootstrap_mean(scores, seed)
    z, share = 1.959963984540054, math.fsum(scores) / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def describe(proof: Proof) -> str:
    """The proof in one sentence."""
    if not proof.n:
        return "The gain is not shown: no test row could be scored on both sides."
    rows = f"{proof.n} sealed test rows" + (f" ({proof.n_excluded} more left out)" if proof.n_excluded else "")
    numbers = f"{proof.diff:+.3f} [{proof.ci95[0]:+.3f}, {proof.ci95[1]:+.3f}], p = {proof.p:.2g} ({proof.test})"
    if proof.shown:
        return f"The gain is shown: {numbers}, on {rows}."
    power = f"this test would have found a gain of about {proof.smallest_gain:.2f} in 4 of 5 cases"
    return f"The gain is not shown: {numbers}, on {rows}; {power}."

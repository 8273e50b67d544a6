"""The statistics of the proof: is the winner better than the baseline on the sealed test rows?

Both sides ran on the same rows, so everything here is paired. numpy and scipy are imported when first needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RESAMPLES = 10_000
EXACT_PAIRS = 200  # up to here the signed-rank test enumerates its distribution


@dataclass(frozen=True)
class Proof:
    """A paired comparison.

    n: pairs that count; n_excluded: pairs left out because infrastructure failed on either side. diff: winner's mean
    minus baseline's, with a 95% bootstrap interval. p: two-sided, by `test`. shown: diff is above 0, p below alpha and
    the interval above 0. smallest_gain: the gain that a test of this size finds with 80% power, given how much the
    pairs scatter; None where that cannot be said: the pairs do not scatter, or are too few for any gain to be shown.
    n_silent: of those left out, pairs that had no answer of the winner alone. A slow winner may be at fault for that, so a
    gain is shown only if it also is with these scored 0.
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
    smallest_gain: float | None
    n_silent: int = 0


def paired_proof(
    baseline: Sequence[float | None], winner: Sequence[float | None], *, seed: int = 0, alpha: float = 0.05
) -> Proof:
    """Compare paired scores. None marks an infrastructure failure. Raises ValueError if the lengths differ, or for NaN."""
    if len(baseline) != len(winner):
        raise ValueError(f"scores must be paired: {len(baseline)} against {len(winner)}")
    pairs = [(a, b) for a, b in zip(baseline, winner, strict=True) if a is not None and b is not None]
    n = len(pairs)
    silent = sum(a is not None and b is None for a, b in zip(baseline, winner, strict=True))
    if not n:
        return Proof(0, len(baseline), 0.0, 0.0, 0.0, (0.0, 0.0), 1.0, "none", 0, 0, 0, False, None)
    if not all(math.isfinite(value) for pair in pairs for value in pair):
        raise ValueError("scores must be finite numbers; write None for a row that could not be scored")
    differences = [round(b - a, 12) for a, b in pairs]  # 0.3 - 0.2 and 0.2 - 0.1 are a tie
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    binary = all(value in (0.0, 1.0) for pair in pairs for value in pair)
    p, test = _mcnemar(wins, losses) if binary else _wilcoxon(differences)
    interval_ = _bootstrap_mean(differences, seed)
    diff = math.fsum(differences) / n
    shown = _beyond_chance(diff, p, interval_, alpha)
    if shown and silent:
        against = [b if b is not None or a is None else 0.0 for a, b in zip(baseline, winner, strict=True)]
        shown = paired_proof(baseline, against, seed=seed, alpha=alpha).shown
    return Proof(
        n=n, n_excluded=len(baseline) - n, baseline_mean=math.fsum(a for a, _ in pairs) / n,
        winner_mean=math.fsum(b for _, b in pairs) / n, diff=diff, ci95=interval_, p=p, test=test, wins=wins,
        losses=losses, ties=n - wins - losses, shown=shown, n_silent=silent,
        smallest_gain=_smallest_gain(differences, wins + losses, binary, alpha),
    )  # fmt: skip


def _beyond_chance(diff: float, p: float, ci95: tuple[float, float], alpha: float = 0.05) -> bool:
    return diff > 0 and p < alpha and ci95[0] > 0


def _mcnemar(wins: int, losses: int) -> tuple[float, str]:
    """Exact two-sided McNemar: given the pairs that differ, wins are Binomial(wins + losses, 1/2)."""
    name = "McNemar, exact"
    if wins + losses == 0:
        return 1.0, name
    from scipy.stats import binomtest

    return float(binomtest(wins, wins + losses, 0.5).pvalue), name


def _wilcoxon(differences: Sequence[float]) -> tuple[float, str]:
    """Wilcoxon's signed ranks; pairs without a difference drop out, equal ones share a rank.

    Up to EXACT_PAIRS pairs the distribution is enumerated with its ties: the normal approximation would show a gain
    on 5 equal differences (p = 0.04), where no sign test can (p = 2 / 2**5 = 0.06).
    """
    import numpy as np
    from scipy.stats import rankdata, wilcoxon

    name, nonzero = "Wilcoxon signed-rank", [d for d in differences if d]
    if not nonzero:
        return 1.0, name
    if len(nonzero) > EXACT_PAIRS:
        result: Any = wilcoxon(nonzero, method="asymptotic", correction=True)
        return float(result.pvalue), f"{name}, normal approximation"
    ranks = np.rint(2 * rankdata(np.abs(nonzero))).astype(int)  # doubled, so that shared ranks are whole numbers
    ways = np.zeros(ranks.sum() + 1)
    ways[0] = 1.0
    for rank in ranks:  # each sign is a fair coin
        ways[rank:] = (ways[rank:] + ways[:-rank]) / 2
        ways[:rank] /= 2
    positive = int(ranks[np.asarray(nonzero) > 0].sum())
    tail = min(ways[: positive + 1].sum(), ways[positive:].sum())
    return min(1.0, 2 * float(tail)), f"{name}, exact"


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


def _smallest_gain(differences: Sequence[float], discordant: int, binary: bool, alpha: float) -> float | None:
    """The true gain that this test would find with 80% power, or None.

    For 0/1 scores: the exact power of McNemar's test, at the share of discordant pairs that was seen (at least 5
    pairs, so that few changes do not look like certainty), or at the gain itself where that is larger. Else the
    normal approximation from the standard deviation of the differences.
    """
    n = len(differences)
    if binary:
        return _smallest_binary_gain(n, max(discordant, 5) / n, alpha)
    from scipy.special import ndtri

    mean = math.fsum(differences) / n
    deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / max(1, n - 1))
    gain = float(ndtri(1 - alpha / 2) + ndtri(0.8)) * deviation / math.sqrt(n)
    return gain if 0 < gain <= 1 and 2 / 2**n < alpha else None


def _smallest_binary_gain(n: int, share: float, alpha: float) -> float | None:
    import numpy as np
    from scipy.stats import binom

    pairs = np.arange(n + 1)  # discordant pairs, and how many of them must be wins for p < alpha
    needed = binom.isf(alpha / 2, pairs, 0.5) + 1

    def power(gain: float) -> float:
        mixed = min(1.0, max(share, gain))
        return float(binom.pmf(pairs, n, mixed) @ binom.sf(needed - 1, pairs, (1 + gain / mixed) / 2))

    if power(1.0) < 0.8:
        return None
    low, high = 0.0, 1.0
    for _ in range(20):  # the power grows with the gain: bisect
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= 0.8 else (middle, high)
    return high


def interval(scores: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """95% interval of one mean: Wilson's for 0/1 scores, else bootstrap. (0, 1) for fewer than 2 graded scores."""
    n = len(scores)
    binary = all(s in (0.0, 1.0) for s in scores)
    if not n or (n < 2 and not binary):
        return 0.0, 1.0
    if not binary:
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
    if not proof.wins and not proof.losses:
        return f"The gain is not shown: baseline and winner scored the same on each of {rows}."
    if proof.n_silent and _beyond_chance(proof.diff, proof.p, proof.ci95):
        return (f"The gain is not shown: {numbers}, on {rows}; but on {proof.n_silent} of those left out only the "
                "winner had no answer, and with these as wrong it is not shown.")  # fmt: skip
    power = f"this test would have found a gain of about {proof.smallest_gain or 0:.2g} in 4 of 5 cases"
    if proof.smallest_gain is None:
        power = "a test of this size cannot show a gain; use more test rows"
    return f"The gain is not shown: {numbers}, on {rows}; {power}."

"""Pairs of 0/1 scores: an exact test of a gain, the interval that agrees with it, and the smallest gain it can show.

The test is unconditional: S. Suissa and J. J. Shuster, The 2 x 2 matched-pairs trial: exact unconditional design and
analysis, Biometrics 47 (1991), 361-372. Its statistic is McNemar's (wins - losses) / sqrt(wins + losses). Without a
gain, wins and losses are equally likely, and only the share of pairs that differ is unknown: p is the largest chance,
over all shares, of a statistic as large as the one seen. McNemar's own exact test, which conditions on the number of
pairs that differ, has less power because its true level is far below the nominal one for few pairs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from workbench.base.distributions import binomial_chance, binomial_tail, find_root, normal_quantile

#: Distance between the shares to try, in standard errors of a share. Between two of them the chance of a large
#: statistic changes in the fourth digit.
SHARE_STEP = 0.2

#: Numbers of differing pairs are summed up to this many standard deviations from their mean.
DEVIATIONS = 9


def mcnemar_p(wins: int, losses: int, n: int) -> float:
    """Compute the two-sided p-value of "no gain" for n pairs, by the numbers of won and lost pairs."""
    if wins == losses:
        return 1.0
    return min(1.0, 2 * _tail(abs(wins - losses) / math.sqrt(wins + losses), n))


def _wins_needed(statistic: float, n: int) -> Any:
    """Return, for 1 to n differing pairs, the least wins among them that reach the statistic."""
    import numpy as np

    differing = np.arange(1, n + 1)
    return np.ceil((differing + statistic * np.sqrt(differing)) / 2 - 1e-9)


@lru_cache(maxsize=8)
def _chances(n: int) -> list[tuple[int, Any]]:
    """Return, for many shares of differing pairs, (the first number of pairs, from 1; the chances from there on)."""
    import numpy as np

    found: list[tuple[int, Any]] = []
    # On the scale of its arc sine, the standard error of a share is the same everywhere.
    for angle in np.linspace(0, math.pi / 2, math.ceil(math.pi * math.sqrt(n) / SHARE_STEP) + 2)[1:]:
        share = math.sin(angle) ** 2
        away = DEVIATIONS * math.sqrt(n * share * (1 - share)) + DEVIATIONS
        first, last = max(1, math.floor(n * share - away)), min(n, math.ceil(n * share + away))
        pairs = np.arange(first, last + 1)
        found.append((first, binomial_chance(pairs, n, share)))
    return found


@lru_cache(maxsize=4096)
def _tail(statistic: float, n: int) -> float:
    """Return the largest chance, over all shares of differing pairs, of a statistic this large without a gain."""
    import numpy as np

    tails = binomial_tail(_wins_needed(statistic, n) - 1, np.arange(1, n + 1), 0.5)
    return float(max(chances @ tails[first - 1 : first - 1 + len(chances)] for first, chances in _chances(n)))


@lru_cache(maxsize=256)
def critical_value(n: int, alpha: float) -> float:
    """Return the statistic above which n pairs have a two-sided p below alpha; infinite if there is none."""
    if 2 * _tail(math.sqrt(n), n) >= alpha:  # even if all pairs are won
        return math.inf
    low, high = 0.0, math.sqrt(n)
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (low, middle) if 2 * _tail(middle, n) < alpha else (middle, high)
    return high


def score_interval(wins: int, losses: int, n: int, bound: float) -> tuple[float, float]:
    """Return the gains (wins - losses) / n that a score test accepts (Tango 1998, Statistics in Medicine 17, 891-908).

    bound: on the statistic. With the normal quantile 1.96 this is Tango's 95% interval; with `critical_value`, it
    excludes 0 exactly if `mcnemar_p` is below the level.
    """

    def distance(gain: float) -> float:
        """Return the standard errors between observed pairs and a true gain, at its likeliest share of losses."""
        b, c = (2 * n - wins + losses) * gain - wins - losses, -losses * gain * (1 - gain)
        lost = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
        variance = n * (2 * lost + gain * (1 - gain))
        off = wins - losses - n * gain
        return off / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, off) if off else 0.0

    diff, edge = (wins - losses) / n, 1 - 1e-9
    low, high = -1.0, 1.0
    if diff > -edge and distance(-edge) > bound:
        low = find_root(lambda gain: distance(gain) - bound, -edge, diff)
    if diff < edge and distance(edge) < -bound:
        high = find_root(lambda gain: distance(gain) + bound, diff, edge)
    return low, high


def tango_interval(wins: int, losses: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return Tango's interval of (wins - losses) / n for n pairs."""
    return score_interval(wins, losses, n, normal_quantile((1 + level) / 2))


def power(n: int, share: float, gain: float, alpha: float = 0.05) -> float:
    """Return the chance that n pairs show a gain if `share` of them differ (more, if the gain itself is larger)."""
    import numpy as np

    bound = critical_value(n, alpha)
    if math.isinf(bound):
        return 0.0
    mixed, pairs = min(1.0, max(share, gain)), np.arange(1, n + 1)
    wins = binomial_tail(_wins_needed(bound, n) - 1, pairs, (1 + gain / mixed) / 2)
    return float(binomial_chance(pairs, n, mixed) @ wins)


def smallest_binary_gain(n: int, share: float, alpha: float = 0.05) -> float | None:
    """Return the gain that n pairs show with 80% power if `share` of them differ; None if there is none."""
    if not n or power(n, share, 1.0, alpha) < 0.8:
        return None
    low, high = 0.0, 1.0
    for _ in range(20):  # the power grows with the gain, so bisect
        middle = (low + high) / 2
        low, high = (low, middle) if power(n, share, middle, alpha) >= 0.8 else (middle, high)
    return high

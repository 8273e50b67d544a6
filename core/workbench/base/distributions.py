"""Distributions, and roots of functions, for the tests of the proof: numpy has none, and scipy takes 95 MiB.

`tests/base/test_distributions.py` compares all of them with scipy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any

#: Terms of the continued fraction of `beta_share`; it needs about the square root of the number of rows.
MAX_TERMS = 2000


def find_root(function: Callable[[float], float], low: float, high: float, within: float = 1e-8) -> float:
    """Find a root of a function with different signs at both ends, within a tolerance of `within`.

    Chandrupatla's method (1997, Advances in Engineering Software 28, 145-149): inverse quadratic interpolation where
    the last three points allow it, else the middle of the bracket. Raises ValueError for ends with the same sign.
    """
    new, old = (low, function(low)), (high, function(high))  # the bracket, as (x, y)
    if new[1] * old[1] > 0:
        raise ValueError(f"the function has the same sign at {low} and at {high}")
    part = 0.5
    while True:
        x = new[0] + part * (old[0] - new[0])
        found = (x, function(x))
        third, old = (new, old) if found[1] * new[1] > 0 else (old, new)
        new = found
        best = min(new, old, key=lambda point: abs(point[1]))
        least = (within / 2 + 4e-16 * abs(best[0])) / abs(old[0] - new[0])
        if least > 0.5 or best[1] == 0:
            return best[0]
        xi = (new[0] - old[0]) / (third[0] - old[0])
        phi = (new[1] - old[1]) / (third[1] - old[1])
        part = 0.5
        if phi * phi < xi and (1 - phi) ** 2 < 1 - xi:
            part = new[1] / (old[1] - new[1]) * third[1] / (old[1] - third[1])
            rest = new[1] / (third[1] - new[1]) * old[1] / (third[1] - old[1])
            part += (third[0] - new[0]) / (old[0] - new[0]) * rest
        part = min(1 - least, max(least, part))


def _numpy() -> Any:
    """Import numpy on first use: it takes a third of a start. Its stubs leave most of this untyped."""
    import numpy

    return numpy


def normal_quantile(share: float) -> float:
    """Compute a quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(share)


def beta_share(x: Any, a: Any, b: Any) -> Any:
    """Compute the regularized incomplete beta function I_x(a, b), elementwise, for x in [0, 1].

    The continued fraction of DLMF 8.17.22, by Lentz's method, on the side of the mean where it converges fast.
    """
    np = _numpy()

    given: Any = np.broadcast_arrays(*(np.asarray(part, dtype=float) for part in (x, a, b)))
    mirrored = given[0] > (given[1] + 1) / (given[1] + given[2] + 2)
    x, a, b = (
        np.where(mirrored, there, here) for here, there in zip(given, (1 - given[0], *given[:0:-1]), strict=True)
    )
    tiny = 1e-300
    with np.errstate(divide="ignore"):
        front = np.exp(_log_gamma(a + b) - _log_gamma(a) - _log_gamma(b) + a * np.log(x) + b * np.log1p(-x)) / a
    numerator = np.ones_like(x)
    denominator = 1 / _apart(1 - (a + b) * x / (a + 1), tiny)
    value = denominator
    for m in range(1, MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = value
        for term in (even, odd):
            denominator = 1 / _apart(1 + term * denominator, tiny)
            numerator = _apart(1 + term / numerator, tiny)
            value = value * numerator * denominator
        if np.all(abs(value - before) <= 2e-15 * abs(value)):
            break
    else:
        raise ArithmeticError(f"the fraction did not converge in {MAX_TERMS} terms")
    return np.where(mirrored, 1 - front * value, front * value)


def _log_gamma(values: Any) -> Any:
    """Return the logarithm of the gamma function, elementwise; for whole numbers from a table."""
    np = _numpy()
    if values.size > 8 and (values == np.floor(values)).all():
        return _log_factorials(1 << int(values.max()).bit_length())[values.astype(int) - 1]
    return np.vectorize(math.lgamma, otypes=[float])(values)


@lru_cache(maxsize=24)
def _log_factorials(size: int) -> Any:
    """Return the logarithms of the factorials of 0 to `size`."""
    return _numpy().array([math.lgamma(number + 1) for number in range(size + 1)])


def _apart(value: Any, tiny: float) -> Any:
    """Return the values, with `tiny` in place of values near 0."""
    np = _numpy()

    return np.where(abs(value) < tiny, tiny, value)


def binomial_chance(k: Any, n: Any, share: float) -> Any:
    """Compute P(X = k), elementwise, of a binomial variable."""
    np = _numpy()

    k, n = np.broadcast_arrays(np.asarray(k, dtype=float), np.asarray(n, dtype=float))
    if share in (0.0, 1.0):
        return (k == n * share).astype(float)
    ways = _log_gamma(n + 1) - _log_gamma(k + 1) - _log_gamma(n - k + 1)
    return np.exp(ways + k * math.log(share) + (n - k) * math.log1p(-share))


def binomial_tail(k: Any, n: Any, share: float) -> Any:
    """Compute P(X > k), elementwise, of a binomial variable."""
    np = _numpy()

    k, n = np.broadcast_arrays(np.asarray(k, dtype=float), np.asarray(n, dtype=float))
    inside = (k >= 0) & (k < n)
    found = beta_share(share, np.where(inside, k + 1, 1), np.where(inside, n - k, 1))
    return np.where(inside, found, (k < 0).astype(float))


def signed_rank_p(differences: Sequence[float]) -> float:
    """Compute Wilcoxon's one-sided p-value of "the differences are not below 0", their zeros split between the sides.

    Exact for up to 50 differences without ties, and for up to 13 others; else the normal approximation, corrected for
    ties, as scipy decides.
    """
    sizes = sorted(abs(value) for value in differences)
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sizes, start=1):
        places.setdefault(value, []).append(place)
    doubled = {value: found[0] + found[-1] for value, found in places.items()}  # twice the mean rank: whole numbers
    n, ties = len(sizes), [len(found) for found in places.values()]
    won = sum(doubled[value] for value in differences if value > 0)
    if (n <= 50 and max(ties) == 1 and sizes[0] > 0) or n <= 13:
        ways = {0: 1}  # number of sign choices with this sum of ranks
        for value in filter(None, sizes):
            more = dict(ways)
            for total, count in ways.items():
                more[total + doubled[value]] = more.get(total + doubled[value], 0) + count
            ways = more
        return sum(count for total, count in ways.items() if total <= won) / sum(ways.values())
    won += doubled.get(0.0, 0) * len(places.get(0.0, ())) / 2
    variance = (n * (n + 1) * (2 * n + 1) - sum(tie**3 - tie for tie in ties) / 2) / 24
    return NormalDist().cdf((won / 2 - n * (n + 1) / 4) / math.sqrt(variance))

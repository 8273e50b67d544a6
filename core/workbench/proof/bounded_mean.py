"""The mean of bounded values: a test that it is above 0, and the matching interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from workbench.base.distributions import find_root

#: Initial distance between the points at which the integral of `mean_p` is summed.
STEP = 0.15


def mean_p(values: Sequence[float], least: float) -> float:
    """Compute the one-sided p-value of "the mean is at most 0" for values of at least `least` (below 0).

    Gaffke's test (2004; Learned-Miller and Thomas 2019, arXiv:1905.06208): the values, and one more that is the worst
    possible, get random weights that are uniform on the simplex; p is the probability that the weighted sum is at most
    0. A rank test has no level for a mean: many small gains and a few total losses give a small p at a mean of 0. This
    test allows for unseen losses. It is exact for values that are `least` or one other number. For all others its level
    is a conjecture that no simulation has broken, including ours in contrib/bench/promises/proof.py.

    The weights are exponentials E over their sum, so p = P(sum of E * x <= 0). It is computed by integrating the sum's
    Laplace transform along a line through its saddle point, so tails are as exact as the middle.
    """
    import numpy as np

    x = np.append(np.asarray(values, dtype=float), least)
    if x.max() <= 0:
        return 1.0
    edge = 1 / x.min()

    def slope(c: float) -> float:
        return float((x / (1 - c * x)).sum() - 1 / c)

    # The integral is the same along any line; one near the saddle point needs the fewest points.
    saddle = find_root(slope, edge * (1 - 1e-13), edge * 1e-12, within=1e-4 * abs(edge))
    height = -np.log1p(-saddle * x).sum()
    width = 1 / math.sqrt(float(((x / (1 - saddle * x)) ** 2).sum()) + saddle**-2)
    quarters = np.append(x, np.zeros(-len(x) % 4)).reshape(4, -1)

    def integrand(t: Any) -> Any:
        """Evaluate at z = saddle + i * width * sinh(t): the step grows where the integrand falls slowly."""
        z = saddle + 1j * width * np.sinh(t)
        factors = (1 - np.multiply.outer(z, quarters)).prod(axis=-2)  # four factors a logarithm, which is slow
        return np.exp(-np.log(factors).sum(axis=-1) - height) / -z * width * np.cosh(t)

    end = 3.0
    while abs(integrand(end)) > 1e-13 * width / -saddle and end < 40:
        end *= 1.25
    count = math.ceil(end / STEP)
    points = integrand(np.linspace(0.0, end, count + 1)).real
    area = (points.sum() - (points[0] + points[-1]) / 2) * end / count
    for _ in range(8):  # the trapezoid rule converges exponentially: halve the step until nothing changes
        middles = integrand((np.arange(count) + 0.5) * end / count).real
        before, area, count = area, (area + middles.sum() * end / count) / 2, 2 * count
        if abs(area - before) <= 1e-8 * abs(area):
            break
    return min(1.0, max(0.0, math.exp(height) * float(area) / math.pi))


def two_sided_mean_p(differences: Sequence[float], largest: float = 1.0) -> float:
    """Compute the two-sided p-value of "the mean is 0" for values in [-largest, largest]."""
    return min(1.0, 2 * min(mean_p(differences, -largest), mean_p([-d for d in differences], -largest)))


def mean_interval(values: Sequence[float], least: float, most: float, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a mean of values in [least, most] that belongs to `mean_p`: all means that neither
    one-sided test rejects."""
    tail, mean = (1 - level) / 2, math.fsum(values) / len(values)

    def end(sign: float, worst: float) -> float:
        """Return the lower (with sign -1 the upper) end of the interval of the mean."""
        if abs(worst - mean) < 1e-9:
            return worst

        def excess(guess: float) -> float:
            return mean_p([sign * (v - guess) for v in values], sign * (worst - guess)) - tail

        return find_root(excess, worst + sign * 1e-9, mean)

    return end(1.0, least), end(-1.0, most)

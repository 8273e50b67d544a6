"""The test and the interval of a mean of bounded values, against independent references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from workbench.proof.bounded_mean import mean_interval, mean_p


@pytest.mark.parametrize("n", [1, 5, 20, 60])
@pytest.mark.parametrize("shift", [-0.1, 0.0, 0.15])
def test_the_test_of_a_mean_is_gaffkes_by_simulation(n: int, shift: float) -> None:
    """Random weights, uniform on the simplex, drawn a million times."""
    rng = np.random.default_rng(n)
    values = np.clip(rng.normal(shift, 0.3, n), -1, 1)
    weights = rng.exponential(size=(1_000_000 // (n + 1), n + 1))
    share = (weights @ np.append(values, -1.0) <= 0).mean()
    assert mean_p(values.tolist(), -1.0) == pytest.approx(share, abs=4 * math.sqrt(0.25 / len(weights)))


@pytest.mark.parametrize(
    ("n", "gain"), [(1, 0.5), (20, 0.2), (60, 0.05), (500, 0.01), (200, 0.9), (3000, 0.4), (5000, 0.001)]
)
def test_the_test_of_a_mean_is_exact_for_equal_gains(n: int, gain: float) -> None:
    """A loss of everything in a share of gain / (1 + gain) rows has the mean 0, and is not seen in (1 / (1 + gain)) **
    n."""
    assert mean_p([gain] * n, -1.0) == pytest.approx((1 / (1 + gain)) ** n, rel=1e-7)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (3, 10), (9, 10), (10, 10), (130, 200)])
def test_the_interval_of_a_mean_is_clopper_pearsons_for_scores_of_0_and_1(hits: int, n: int) -> None:
    reference = stats.binomtest(hits, n).proportion_ci(method="exact")
    found = mean_interval([1.0] * hits + [0.0] * (n - hits), 0.0, 1.0)
    assert found == pytest.approx((reference.low, reference.high), abs=1e-6)

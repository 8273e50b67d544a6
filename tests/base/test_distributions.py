"""The distributions and roots that the proof computes with, beside scipy's."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import optimize, special, stats

from workbench.base import distributions as ours


@pytest.mark.parametrize("n", [1, 7, 50, 1000])
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.999, 1.0])
def test_binomial_chances_and_tails(n: int, share: float) -> None:
    k = np.arange(-1, n + 1)
    assert ours.binomial_chance(k[1:], n, share) == pytest.approx(
        stats.binom.pmf(k[1:], n, share), rel=1e-10, abs=1e-250
    )
    assert ours.binomial_tail(k, n, share) == pytest.approx(stats.binom.sf(k, n, share), rel=1e-10, abs=1e-250)


def test_a_tail_of_several_sizes_at_once() -> None:
    sizes = np.arange(1, 200)
    wins = sizes // 2 - 1
    assert ours.binomial_tail(wins, sizes, 0.5) == pytest.approx(stats.binom.sf(wins, sizes, 0.5), rel=1e-11)


def test_the_incomplete_beta_function_on_both_sides_of_its_mean() -> None:
    draw = random.Random(1)
    for _ in range(300):
        a, b, x = draw.choice([0.5, 3.0, 80.0, 2000.0]), draw.choice([0.5, 2.0, 700.0]), draw.random()
        assert float(ours.beta_share(x, a, b)) == pytest.approx(float(special.betainc(a, b, x)), rel=1e-9, abs=1e-280)


def test_normal_quantiles() -> None:
    for share in (1e-9, 0.025, 0.5, 0.8, 0.975, 1 - 1e-9):
        assert ours.normal_quantile(share) == pytest.approx(special.ndtri(share), rel=1e-12, abs=1e-15)


FUNCTIONS = {
    "line": (lambda x: 3 * x - 1, -10.0, 10.0),
    "steep": (lambda x: math.tanh(1e4 * (x - 0.123)), 0.0, 1.0),
    "flat": (lambda x: math.exp(-20 * x) - 1e-6, 0.0, 5.0),
    "high first": (lambda x: 0.3 - x * x, 1.0, 0.0),
    "at an end": (lambda x: x, 0.0, 1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_roots(name: str) -> None:
    function, low, high = FUNCTIONS[name]
    asked = 0

    def counted(x: float) -> float:
        nonlocal asked
        asked += 1
        return function(x)

    assert ours.find_root(counted, low, high) == pytest.approx(
        optimize.brentq(function, low, high, xtol=1e-12), abs=2e-8
    )
    assert asked <= 60, "a bisection needs some 35"
    with pytest.raises(ValueError, match="same sign"):
        ours.find_root(lambda x: x * x + 1, low, high)


@pytest.mark.parametrize("seed", range(40))
def test_signed_ranks(seed: int) -> None:
    """Without ties, with ties, with zeros; few and many."""
    draw = random.Random(seed)
    n = draw.choice([3, 8, 13, 14, 30, 50, 51, 200])
    kind = ("smooth", "halves", "signs")[seed % 3]
    values = {
        "smooth": [draw.gauss(-0.1, 1) for _ in range(n)],
        "halves": [draw.choice([-1, -0.5, 0, 0.5, 1]) for _ in range(n)],
        "signs": [float(draw.choice([-1, 0, 0, 1])) for _ in range(n)],
    }[kind]
    if not any(values):
        values[0] = -1.0
    theirs = stats.wilcoxon(values, alternative="less", zero_method="zsplit").pvalue
    assert ours.signed_rank_p(values) == pytest.approx(theirs, rel=1e-9)

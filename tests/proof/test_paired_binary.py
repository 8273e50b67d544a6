"""The paired test of 0/1 scores, against independent references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from workbench.proof.paired_binary import critical_value, mcnemar_p, power, score_interval, tango_interval


@pytest.mark.parametrize(("wins", "losses", "n"), [(50, 8, 200), (9, 3, 44), (0, 0, 20), (6, 0, 6), (5, 12, 40)])
def test_tangos_interval_has_the_score_test_at_its_ends(wins: int, losses: int, n: int) -> None:
    """The ends are where the score statistic, with the likelihood maximised numerically, is 1.96, or another bound."""
    from scipy.optimize import minimize_scalar

    def statistic(gain: float) -> float:
        low, high = max(0.0, -gain) + 1e-12, (1 - gain) / 2 - 1e-12

        def unlikely(lost: float) -> float:
            return -(
                wins * math.log(lost + gain)
                + losses * math.log(lost)
                + (n - wins - losses) * math.log(1 - 2 * lost - gain)
            )

        lost = minimize_scalar(unlikely, bounds=(low, high), method="bounded", options={"xatol": 1e-12}).x
        return (wins - losses - n * gain) / math.sqrt(n * (2 * lost + gain - gain**2))

    for bound, ends in ((1.95996, tango_interval(wins, losses, n)), (2.3, score_interval(wins, losses, n, 2.3))):
        for end, sign in zip(ends, (1, -1), strict=True):
            if abs(end) < 1:
                assert sign * statistic(end) == pytest.approx(bound, abs=2e-3)
        assert ends[0] <= (wins - losses) / n <= ends[1]


@pytest.mark.parametrize("n", [7, 20, 33])
def test_the_interval_excludes_0_just_where_p_is_below_its_level(n: int) -> None:
    for wins in range(n + 1):
        for losses in range(n + 1 - wins):
            low, high = score_interval(wins, losses, n, critical_value(n, 0.05))
            assert (low > 0 or high < 0) == (mcnemar_p(wins, losses, n) < 0.05), (wins, losses)


#: Rows, share that differs, gain, power: by an independent check (exact, no simulation).
KNOWN_POWER = [
    (20, 0.30, 0.20, 0.314),
    (20, 0.15, 0.10, 0.064),
    (60, 0.30, 0.20, 0.822),
    (60, 0.15, 0.10, 0.511),
    (60, 0.10, 0.06, 0.248),
    (200, 0.30, 0.10, 0.738),
    (200, 0.10, 0.06, 0.793),
]


@pytest.mark.parametrize(("n", "share", "gain", "known"), KNOWN_POWER)
def test_the_power_for_binary_scores_is_that_of_the_unconditional_test(
    n: int, share: float, gain: float, known: float
) -> None:
    assert power(n, share, gain) == pytest.approx(known, abs=6e-4)
    conditional = stats.binom.isf(0.025, np.arange(n + 1), 0.5) + 1  # McNemar's own exact test
    wins = stats.binom.sf(conditional - 1, np.arange(n + 1), (1 + gain / share) / 2)
    assert power(n, share, gain) > stats.binom.pmf(np.arange(n + 1), n, share) @ wins


@pytest.mark.parametrize(("n", "alpha"), [(20, 0.05), (60, 0.05), (200, 0.05), (60, 0.0083), (37, 0.025)])
def test_the_level_for_binary_scores_holds_for_every_share(n: int, alpha: float) -> None:
    bound = critical_value(n, alpha)
    pairs = np.arange(1, n + 1)
    wins = np.arange(n + 1)[:, None]
    reached = (2 * wins - pairs) / np.sqrt(pairs) > bound
    tails = (stats.binom.pmf(wins, pairs, 0.5) * (reached & (wins <= pairs))).sum(axis=0)
    levels = [stats.binom.pmf(pairs, n, share) @ tails for share in np.linspace(0.001, 1, 1000)]
    assert max(levels) <= alpha / 2 and max(levels) > 0.6 * alpha / 2

"""Targets on the sealed rows: values, intervals, verdicts, against hand-counted tables and an independent reference."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from workbench.proof import Ceiling, interval, paired_proof
from workbench.spec import TargetsSpec
from workbench.study import Result
from workbench.task import Example
from workbench_levels.levels import Level, binomial_quantile, claim_levels, few_rows_warning, measure_levels


def results(scores: list[float | None], seconds: list[float] | None = None, **more: Any) -> list[Result]:
    times = seconds or [1.0] * len(scores)
    return [
        Result(Example(str(i), {}), s, seconds=t, **more) for i, (s, t) in enumerate(zip(scores, times, strict=True))
    ]


def measure(
    found: list[Result], clusters: list[Any] | None = None, alpha: float = 0.05, **targets: float
) -> list[Level]:
    keys = clusters or list(range(len(found)))
    return list(
        measure_levels(TargetsSpec(**targets), found, keys, ceilings={"usd": Ceiling(0.02, "known")}, alpha=alpha)
    )


def test_a_score_is_met_or_missed_by_its_whole_interval() -> None:
    good = results([1.0] * 90 + [0.0] * 10)
    low, high = interval([1.0] * 90 + [0.0] * 10)
    assert [
        measure(good, score=limit)[0].verdict for limit in (low - 0.001, low + 0.001, high - 0.001, high + 0.001)
    ] == [
        "met",
        "open",
        "open",
        "missed",
    ]
    assert measure(good, score=0.8, alpha=0.005)[0].interval[0] < low, "after other tests on the same rows"


def test_rows_without_a_result_are_in_no_mean_and_in_the_worst_case_of_the_interval() -> None:
    whole, (level,) = measure(results([1.0] * 8), score=0.5)[0], measure(results([1.0] * 8 + [None] * 2), score=0.5)
    assert level.value == whole.value == 1.0 and level.interval[0] < 0.8 * whole.interval[0] + 0.2
    assert level.interval[0] == measure(results([1.0] * 8 + [0.0] * 2), score=0.5)[0].interval[0]


def test_costs_are_bounded_by_what_a_row_can_cost_at_most() -> None:
    (level,) = measure(results([1.0] * 200, usd=0.002), usd=0.004)
    assert level.value == pytest.approx(0.002) and level.interval[0] < 0.002 < level.interval[1] < 0.004
    assert level.verdict == "met"
    (free,) = measure_levels(
        TargetsSpec(usd=0.1), results([1.0] * 5), range(5), ceilings={"usd": Ceiling(0.0, "")}, alpha=0.05
    )
    assert free.interval == (0.0, 0.0) and free.verdict == "met"


def test_the_percentile_is_that_of_ranks() -> None:
    """100 rows of 1 to 100 s. The 90th and the 99th bound the percentile: binomial tails by summing."""
    (level,) = measure(results([1.0] * 100, [float(i) for i in range(1, 101)]), p95_latency=95.5)
    assert level.value == 95.0
    low, high = level.interval
    below = [math.comb(100, k) * 0.95**k * 0.05 ** (100 - k) for k in range(101)]
    assert sum(below[: int(low)]) <= 0.025 < sum(below[: int(low) + 1])
    assert sum(below[: int(high)]) >= 0.975 > sum(below[: int(high) - 1])
    assert level.verdict == "open"


def test_the_interval_of_the_percentile_holds_it_in_19_of_20_samples() -> None:
    rng, truth, held = np.random.default_rng(3), float(np.exp(1.6448536)), 0
    for _ in range(400):
        (level,) = measure(results([1.0] * 120, [float(x) for x in np.exp(rng.standard_normal(120))]), p95_latency=9)
        held += level.interval[0] <= truth <= level.interval[1]
    assert held >= binom.ppf(0.001, 400, 0.95)


def test_few_rows_do_not_bound_the_percentile_and_that_is_said_before() -> None:
    fast = [measure(results([1.0] * n), p95_latency=2.0)[0].verdict for n in (71, 72)]
    assert fast == ["open", "met"]
    targets = TargetsSpec(p95_latency=2.0)
    assert not few_rows_warning(targets, 72) and "72 or more" in few_rows_warning(targets, 71)[0]
    assert not few_rows_warning(TargetsSpec(score=0.5), 5) and not few_rows_warning(None, 5)


@pytest.mark.parametrize("failure", ["timeout", "server"])
def test_rows_without_an_answer_are_slower_than_any_however_soon_they_ended(failure: str) -> None:
    found = [*results([1.0] * 80), *results([None] * 20, [0.0] * 20, failure=failure)]
    (level,) = measure(found, p95_latency=100.0)
    assert math.isinf(level.value) and level.verdict == "missed"
    assert json.dumps(claim_levels((level,)).as_dict(), allow_nan=False)


def test_rows_of_a_cluster_count_once_by_their_mean_and_their_slowest() -> None:
    found = results([1.0, 0.0, 1.0], [1.0, 9.0, 2.0])
    score, slow = measure(found, ["a", "a", "b"], score=0.5, p95_latency=5.0)
    assert score.value == pytest.approx(0.75) and slow.value == 9.0


def test_shown_takes_each_target_and_the_margin() -> None:
    met, open_ = Level("usd", 2.0, 1.0, (0.9, 1.1)), Level("score", 0.8, 0.82, (0.75, 0.9))
    same = paired_proof([1.0] * 100, [1.0] * 100)
    worse = paired_proof([1.0] * 100, [1.0] * 90 + [0.0] * 10)
    assert same.loss_bounded and not worse.loss_bounded
    assert claim_levels((met,)).shown and claim_levels((met,), loss=same).shown
    assert not claim_levels((met,), loss=worse).shown
    assert claim_levels((met,), loss=worse, needs_margin=False).shown
    assert not claim_levels((met, open_), loss=same).shown and not claim_levels(()).shown
    assert paired_proof([1.0] * 100, [1.0] * 90 + [0.0] * 10, margin=0.3).loss_bounded


def test_the_lines_say_what_is_met_and_what_is_not() -> None:
    levels = (Level("usd", 2.0, 1.0, (0.9, 1.1)), Level("p95_latency", 3.0, 2.0, (1.5, math.inf)))
    told = claim_levels(levels, "abcdefgh12", False, paired_proof([1.0] * 100, [1.0] * 100)).lines()
    assert told[0] == "The targets are not shown to be met on the sealed rows:"
    assert told[1] == "  usd 1 [0.9, 1.1] of at most 2: met"
    assert told[2] == "  p95_latency 2 [1.5, ?] of at most 3: open"
    assert "abcdefgh, the best candidate on val" in told[3] and "a loss of 0.05 is ruled out" in told[3]


def test_what_the_second_side_has_for_less_is_measured_where_the_workflow_ran_first() -> None:
    """A cache of the other side's answers: 1 s without it, and a target of 0.7."""
    found = [Result(Example(str(i), {}), 1.0, seconds=1.0 if i % 2 else 0.1, turn=1 if i % 2 else 2) for i in range(80)]
    ceilings = {"latency": Ceiling(3.0, "known")}
    whole = measure_levels(TargetsSpec(latency=0.7), found, range(80), ceilings=ceilings, alpha=0.05)
    assert whole[0].value == pytest.approx(0.55)
    cold = measure_levels(TargetsSpec(latency=0.7), found, range(80), ceilings=ceilings, alpha=0.05, warmed={"latency"})
    assert (
        cold[0].value == 1.0 and cold[0].verdict == "missed" and "on the 40 rows that it ran first on" in str(cold[0])
    )


@pytest.mark.parametrize("n", [1, 8, 59, 300])
def test_binomial_quantiles(n: int) -> None:
    for share in (0.005, 0.025, 0.5, 0.975, 0.9999):
        assert binomial_quantile(share, n, 0.95) == binom.ppf(share, n, 0.95)

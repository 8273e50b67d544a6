"""The size of the sealed test: the calls of a run go where a proved gain becomes most likely."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import better_with_demos, plant

from workbench.run.proof_size import EQUAL, Outlook, plan_test_size
from workbench.study import Evaluation, Result
from workbench.task import Example
from workbench.workflow import Workflow

FULL, CANDIDATE = {"calls": 120.0}, {"calls": 40.0}


def plan(left: float, outlook: Outlook, **more: Any) -> float:
    return plan_test_size(60, {"calls": left}, FULL, CANDIDATE, outlook, **more)


def evaluated(name: str, scores: list[float]) -> Evaluation:
    results = tuple(Result(Example(id=str(i), fields={}), score) for i, score in enumerate(scores))
    return Evaluation(
        Workflow({"nodes": {name: {"kind": "predict", "signature": "text -> label"}}}), "val", results, True
    )


def test_a_large_gain_keeps_the_whole_test() -> None:
    assert plan(300, Outlook(0.4, 0.6, 0.5, 0.1)) == 1.0, "more candidates would add nothing to the chance"


def test_before_a_gain_is_found_a_tight_budget_buys_candidates_first() -> None:
    share = plan(160, Outlook())
    assert 0.2 <= share <= 0.75, "160 calls pay for the test and one candidate, or for half of it and two or more"
    assert plan(1000, Outlook()) == 1.0


def test_a_search_that_stopped_improving_leaves_the_calls_to_the_test() -> None:
    hopeful, stuck = Outlook(0.1, 0.55, 0.5, 0.15), Outlook(0.1, 0.55, 0.02, 0.15)
    assert plan(160, hopeful) < plan(160, stuck) == 1.0


def test_every_ceiling_counts() -> None:
    left = {"calls": math.inf, "tokens": math.inf, "usd": math.inf}
    takes = {"calls": 120.0, "tokens": 1e4, "usd": 1.0}
    one = {what: value / 3 for what, value in takes.items()}
    assert plan_test_size(60, left, takes, one, Outlook()) == 1.0
    assert plan_test_size(60, {**left, "usd": 0.5}, takes, one, Outlook(0.4)) == 0.5, "half of the test is paid for"
    assert plan_test_size(60, {**left, "tokens": 100}, takes, one, Outlook(0.4)) == 0.0
    assert plan_test_size(60, {**left, "usd": 1.0}, takes, dict.fromkeys(takes, 0.0), Outlook()) == 1.0


@pytest.mark.parametrize(("gain", "improving", "candidates", "rows"), [(0.0, 0.5, 3, 40), (0.1, 0.2, 5, 60)])
def test_the_chance_is_that_of_simulated_runs(gain: float, improving: float, candidates: int, rows: int) -> None:
    """Independent of the formula: candidates and differences of rows are drawn, and a z test decides."""
    outlook, rng, shown, runs = Outlook(gain, 0.5, improving, 0.12), random.Random(0), 0, 4000
    for _ in range(runs):
        true = gain + 0.12 * sum(rng.random() < improving for _ in range(candidates))
        mean = sum(rng.gauss(true, 0.5) for _ in range(rows)) / rows
        shown += true > 0 and mean * math.sqrt(rows) / 0.5 > 1.96
    assert outlook.chance_of_proof(rows, candidates) == pytest.approx(shown / runs, abs=0.03)


def test_what_is_expected_follows_val() -> None:
    base, worse = evaluated("base", [0.0, 1.0] * 10), evaluated("worse", [0.0, 0.0] * 10)
    better = evaluated("better", [1.0, 1.0] * 10)
    assert Outlook.of(base, base, [base]) == Outlook()
    none = Outlook.of(base, base, [base, worse, worse, worse])
    assert none.gain == 0.0 and none.improving < Outlook().improving
    found = Outlook.of(base, better, [base, worse, better])
    assert 0.35 < found.gain < 0.5, "shrunk by the error of 20 rows"
    assert found.improving > none.improving and found.step > Outlook().step
    few = Outlook.of(evaluated("base", [0.0, 1.0]), evaluated("better", [1.0, 1.0]), [])
    assert few.gain < found.gain, "two rows say less"


def test_chances_that_are_equal_choose_the_larger_test() -> None:
    sure = Outlook(0.8, 0.3, 0.2, 0.05)
    smaller, whole = sure.chance_of_proof(24, 2), sure.chance_of_proof(60, 0)
    assert 0 <= smaller - whole < EQUAL and plan(130, sure) == 1.0, "24 rows and two candidates add next to nothing"


def test_a_test_that_does_not_fit_at_all_keeps_half_of_the_budget(tmp_path: Path, monkeypatch: Any) -> None:
    """Else the search would take what is left, and nothing would be tested."""
    monkeypatch.setattr("workbench.run.sealed_test.plan_test_size", lambda *args: 0.0)
    search = {"random": {"trials": 40}}
    report, _ = plant(tmp_path, better_with_demos, search, calls=300, rows=(40, 40, 80))
    assert report.changes and report.test_rows == 80

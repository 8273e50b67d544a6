"""Targets: which candidate is picked, and which faster ones `serve` may take in its place."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from workbench.spec import Spec
from workbench.study import (
    Aims,
    Evaluation,
    Result,
    configurations,
    cost_objective,
    pick_by_targets,
    pick_winner,
)
from workbench.task import Example
from workbench.workflow import Workflow

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib" / "bench" / "promises"))

import service_levels as bench

FILE = {"data": {"file": "d"}, "metric": "m", "nodes": {"n": {}}}


def spec(targets: dict[str, float], **more: Any) -> Spec:
    return Spec.model_validate({**FILE, "targets": targets, **more})


def candidate(
    name: str, right: int, usd: float, seconds: float = 1.0, of: int = 100, slow: int = 0, **more: Any
) -> Evaluation:
    """right: rows of `of` that score 1, the first ones. slow: the last rows, which take ten times as long."""
    results = tuple(
        Result(
            Example(str(i), {}),
            float(i < right),
            usd=usd,
            seconds=seconds * (10 if i >= of - slow else 1),
            **(more if i >= of - slow else {}),
        )
        for i in range(of)
    )
    return Evaluation(Workflow({"lm": name, "nodes": {}}), "val", results, True)


def picked(found: list[Evaluation], targets: dict[str, float], **more: Any) -> str:
    return pick_winner(found, spec(targets, **more)).workflow.tree["lm"]


SHELF = [
    candidate("baseline", 97, 0.010, 2.0),
    candidate("small", 70, 0.001, 0.5),
    candidate("medium", 90, 0.003, 1.5),
    candidate("quick", 90, 0.006, 0.5),
    candidate("good", 94, 0.005, 1.8),
]


def test_the_cheapest_that_meets_all_targets_is_picked() -> None:
    assert picked(SHELF, {"score": 0.8}) == "medium"
    assert picked(SHELF, {"score": 0.8, "p95_latency": 1.0}) == "quick"
    assert picked(SHELF, {"score": 0.6}) == "small"
    assert picked(SHELF, {"score": 0.91}) == "good"
    assert picked(SHELF, {"score": 0.91, "latency": 1.9, "usd": 0.008}) == "good"


def test_who_only_just_meets_a_target_on_val_is_not_taken_at_its_word() -> None:
    """0.81 of 100 rows is 0.25 standard errors above 0.8."""
    lucky = candidate("lucky", 81, 0.002)
    assert picked([*SHELF, lucky], {"score": 0.8}) == "medium"
    assert picked([SHELF[0], SHELF[1], lucky], {"score": 0.8, "usd": 0.005}) == "lucky", "but if nobody has more room"


def test_if_none_meets_the_targets_the_nearest_is_picked() -> None:
    assert picked(SHELF, {"score": 0.95, "usd": 0.005}) == "good", "1% short; medium 5%, baseline twice too dear"
    assert picked(SHELF, {"score": 0.6, "usd": 0.0001}) == "small"


def test_one_row_in_twenty_may_be_slow() -> None:
    found = [candidate("dear", 90, 0.01), candidate("five", 90, 0.001, slow=5), candidate("six", 90, 0.001, slow=6)]
    aims = Aims.of(spec({"p95_latency": 2.0}), found)
    assert aims is not None
    assert [e.objectives["p95_latency"] for e in found] == [1.0, 1.0, 10.0]
    assert [sorted(aims.shortfalls(e)) for e in found] == [[], [], ["p95_latency"]]
    assert aims.shortfalls(found[1], room=1.0), "five of a hundred are too many by one standard error"
    assert pick_by_targets(found, aims, ["score", "usd"]) is found[0]


def test_rows_that_timed_out_are_slow() -> None:
    """Their requests took no time that counts."""
    found = candidate("hangs", 94, 0.001, slow=6, failure="timeout")
    hangs = Evaluation(
        found.workflow, "val", tuple(Result(r.example, r.score, r.failure, seconds=0.0) for r in found.results), True
    )
    aims = Aims.of(spec({"p95_latency": 2.0}), [hangs])
    assert aims is not None and aims.shortfalls(hangs)["p95_latency"] == pytest.approx(0.01)


def test_the_margin_binds_where_no_score_is_given_or_it_is_set() -> None:
    assert picked(SHELF, {"usd": 0.02}) == "good", "medium and quick lose 0.07, good 0.03: less than the default, 0.05"
    assert picked(SHELF, {"usd": 0.02, "score": 0.6}) == "small"
    assert picked(SHELF, {"usd": 0.02, "score": 0.6}, proof={"margin": 0.05}) == "good"
    assert picked(SHELF, {"usd": 0.02}, proof={"margin": 0.15}) == "medium"


def test_cheap_is_told_by_dollars_then_tokens_then_calls() -> None:
    def of(name: str, usd: float, tokens: int, calls: int = 1) -> Evaluation:
        row = Result(Example("1", {}), 1.0, usd=usd, tokens=tokens, calls=calls)
        return Evaluation(Workflow({"lm": name, "nodes": {}}), "val", (row,), True)

    assert cost_objective([of("a", 1, 9), of("b", 2, 3)], ["score"]) == "usd"
    assert cost_objective([of("a", 0, 9), of("b", 0, 3)], ["score"]) == "tokens"
    assert cost_objective([of("a", 0, 9, 1), of("b", 0, 9, 2)], ["score"]) == "calls"
    assert cost_objective([of("a", 1, 9), of("b", 2, 3)], ["score", "tokens"]) == "tokens", "if the file says so"


def test_serve_gets_the_faster_ones_that_meet_the_targets_cheapest_first() -> None:
    flash = candidate("flash", 85, 0.009, 0.2)
    found = {e.workflow.hash: e for e in [*SHELF, flash]}

    def names(start: int, targets: dict[str, float]) -> list[str]:
        return [e.workflow.tree["lm"] for e in configurations(SHELF[start].workflow, found, spec(targets))]

    assert names(2, {"score": 0.8, "p95_latency": 3}) == ["medium", "quick", "flash"]
    assert names(2, {"score": 0.8, "p95_latency": 3, "usd": 0.007}) == ["medium", "quick"]
    assert names(2, {"score": 0.88, "latency": 3}) == ["medium", "quick"]
    assert names(2, {"score": 0.8}) == [], "without a target of time nothing is to be kept under load"
    assert names(1, {"score": 0.86, "p95_latency": 3}) == [], "none is faster than the smallest"


def test_targets_make_their_costs_objectives() -> None:
    assert spec({"score": 0.8, "p95_latency": 3, "usd": 1}).objectives == ["score", "usd", "p95_latency"]
    assert spec({"usd": 1}, objectives=["score"]).objectives == ["score"]
    assert spec({"usd": 1}).tested_sides == 3 and Spec.model_validate(FILE).tested_sides == 2
    with pytest.raises(ValidationError, match="targets and pick exclude"):
        spec({"usd": 1}, pick="cheapest")
    with pytest.raises(ValidationError, match="at least one limit"):
        spec({})


@pytest.mark.long
@pytest.mark.slow
def test_the_standard_error_makes_more_picks_meet_the_targets_in_truth() -> None:
    """Over 150 planted runs each; and what is said to be shown is true."""
    safe = bench.measure_picks(150, 60, pick_by_targets, seed=5)
    bare = bench.measure_picks(150, 60, bench.pick_by_values, seed=5)
    assert safe["met"] > bare["met"] + 0.1 and safe["shown"] > bare["shown"]
    assert safe["dearer"] < 1.5 and math.isfinite(safe["dearer"])
    assert safe["false95"][0] <= 0.05 and bare["false95"][0] <= 0.05

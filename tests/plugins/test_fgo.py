"""`fgo` and `rewrite`: dividing, merging, the guard, planted worlds, and the size of the proposer's prompts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.planted import lower_bound

from workbench import Workflow
from workbench.data import Example
from workbench.evaluate import Result
from workbench_fgo.divide import at_random, by_group, failure_of
from workbench_fgo.merge import union
from workbench_fgo.optimizer import Fgo
from workbench_sim.run import run_world
from workbench_sim.worlds import WORLDS

ROWS = [Example(str(i), {"text": f"row {i}", "type": "ab"[i % 3 == 0]}) for i in range(25)]


@pytest.mark.parametrize("size", [1, 4, 8, 25, 40])
def test_random_parts_hold_every_row_once(size: int) -> None:
    parts = at_random(ROWS, size, random.Random(1))
    assert sorted(int(r.id) for p in parts for r in p) == list(range(25))
    assert len(parts) == -(-25 // size) and max(map(len, parts)) <= size
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("size", [3, 8, 9, 30])
def test_groups_stay_together_where_they_fit(size: int) -> None:
    """9 rows of type b, 16 of a."""
    parts = by_group(ROWS, size, random.Random(1), lambda row: row["type"])
    assert sorted(int(r.id) for p in parts for r in p) == list(range(25)) and max(map(len, parts)) <= size
    mixed = [p for p in parts if len({r["type"] for r in p}) == 2]
    assert len(mixed) <= 1


def test_what_counts_as_the_same_failure() -> None:
    def result(score: float, answer: str, failure: str | None = None) -> Result:
        return Result(ROWS[0], score, failure, prediction={"label": answer})

    assert failure_of(result(1.0, "x")) == "" != failure_of(result(0.0, "x"))
    assert failure_of(result(0.0, "x")) != failure_of(result(0.0, "y"))
    assert failure_of(result(0.0, "x", "cut")) != failure_of(result(0.0, "x"))


def test_a_union_keeps_the_first_of_one_name() -> None:
    one, two = {"name": "f", "source": "1"}, {"name": "f", "source": "2"}
    assert union([[one], [two, {"name": "g"}]]) == [one, {"name": "g"}]
    assert union([[{"text": 1}], [{"text": 1}, {"text": 2}]]) == [{"text": 1}, {"text": 2}]


def test_an_unknown_inner_optimizer_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="Did you mean 'rewrite'"):
        Fgo(inner="rewrit")
    with pytest.raises(ValueError, match="name one optimizer"):
        Fgo(inner={"rewrite": {}, "random": {}})
    with pytest.raises(ValueError, match="width"):
        Fgo(inner={"rewrite": {"width": 0}})


@pytest.mark.parametrize("world", ["rules", "conflict"])
def test_beats_random_search_at_equal_calls(world: str) -> None:
    seeds = range(8)
    found = [run_world(WORLDS[world], "fgo", calls=1000, seed=s) for s in seeds]
    others = [run_world(WORLDS[world], "random", calls=1000, seed=s) for s in seeds]
    assert all(r.calls <= 1000 and r.error is None for r in found)
    assert lower_bound([f.accuracy - o.accuracy for f, o in zip(found, others, strict=True)]) > 0, (found, others)


def test_claims_nothing_where_nothing_helps() -> None:
    found = [run_world(WORLDS["null_rules"], "fgo", calls=500, seed=s) for s in range(8)]
    assert sum(r.claimed for r in found) <= 1


@pytest.mark.parametrize("divide", [{"divide": "failures"}, {"divide": "type", "by": "topic"}])
def test_other_ways_to_divide(divide: dict[str, Any]) -> None:
    found = run_world(WORLDS["rules"], {"fgo": divide}, calls=900, seed=1)
    assert found.error is None and found.accuracy > 0.5


def test_divide_by_a_field_that_is_not_there_names_those_that_are() -> None:
    found = run_world(WORLDS["rules"], {"fgo": {"divide": "type", "by": "kind"}}, calls=300, seed=1)
    assert found.error is not None and "text, label, topic" in found.error


def test_the_proposers_prompts_stay_small_as_train_grows() -> None:
    """Against all rows at once: at most half the prompt tokens a proposal, and no growth of the largest prompt."""
    largest, scores = [], []
    for train in (48, 96, 192):
        rows, calls = {"train": train, "val": 40, "test": 60}, 500 + 8 * train
        one = [
            run_world(WORLDS["rules"], {"rewrite": {"batch": None}}, calls=calls, seed=s, rows=rows) for s in range(3)
        ]
        ours = [run_world(WORLDS["rules"], "fgo", calls=calls, seed=s, rows=rows) for s in range(3)]

        def mean(runs: list[Any]) -> float:
            return sum(r.proposer["prompt_tokens"] for r in runs) / sum(r.proposer["calls"] for r in runs)

        assert mean(ours) <= 0.5 * mean(one), (train, mean(ours), mean(one))
        largest.append(max(r.proposer["largest_prompt"] for r in ours))
        scores += [a.accuracy - b.accuracy for a, b in zip(ours, one, strict=True)]
    assert max(largest) <= 1.25 * largest[0], largest
    assert sum(scores) / len(scores) >= 0, scores


def test_a_merge_that_loses_what_was_learned_is_not_kept(tmp_path: Path) -> None:
    """A proposer that merges everything into nothing: the best of what went in is kept."""
    import asyncio

    from workbench_fgo.merge import merged

    class Lossy:
        async def prompt(self, messages: Any, replica: int = 0) -> str | None:
            return "Nothing."

    base = Workflow({"name": "w", "nodes": {"a": {"kind": "predict", "signature": "x -> y", "instructions": "Plain."}}})
    one, two = (base.patched({"nodes.a.instructions": text}) for text in ("One.", "Two."))
    made = asyncio.run(merged(Lossy(), base, [(0.9, one), (0.5, two)], 0))  # type: ignore[arg-type]
    assert made is not None and made.get("nodes.a.instructions") == "Nothing."
    same = asyncio.run(merged(Lossy(), base, [(0.9, one), (0.5, one)], 0))  # type: ignore[arg-type]
    assert same == one, "where nobody disagrees nobody is asked"

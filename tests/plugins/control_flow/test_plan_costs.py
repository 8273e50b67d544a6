"""The costs of plans (workflows/plan_costs.py, ToolChain*): by hand, and against brute force."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.helpers.plans import COSTS, calls

_spec = importlib.util.spec_from_file_location("plan_costs", COSTS)
assert _spec is not None and _spec.loader is not None
costs: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(costs)


def remembered(plans: Sequence[Sequence[str]]) -> str:
    """Plans as a `recall` node shows them."""
    return "\n".join(f"question: q\ntool: finish\nplan: {json.dumps(calls(plan))}\n" for plan in plans)


def test_the_longest_common_subsequence_is_that_of_brute_force() -> None:
    def brute(a: Sequence[str], b: Sequence[str]) -> int:
        subsequences = {tuple(x for i, x in enumerate(a) if mask >> i & 1) for mask in range(2 ** len(a))}

        def within(s: tuple[str, ...]) -> bool:
            rest = iter(b)
            return all(x in rest for x in s)

        return max(len(s) for s in subsequences if within(s))

    rng = random.Random(0)
    for _ in range(200):
        a, b = ([rng.choice("xyz") for _ in range(rng.randrange(7))] for _ in range(2))
        assert costs.lcs_length(a, b) == brute(a, b) == costs.lcs_length(b, a)


def test_all_costs_lie_between_zero_and_one() -> None:
    rng = random.Random(1)
    for _ in range(500):
        path = [rng.choice("abcd") for _ in range(rng.randint(1, 6))]
        memory = remembered([[rng.choice("abcd") for _ in range(rng.randint(1, 6))] for _ in range(rng.randrange(4))])
        imagined = "\n".join(rng.choice("abcd") for _ in range(rng.randrange(5)))
        weight, share = rng.random(), rng.random()
        tool = rng.choice([path[-1], "finish"])
        assert 0.0 <= costs.compute_step_cost(calls(path), tool, share, memory, weight) <= 1.0
        assert 0.0 <= costs.estimate_remaining(calls(path), tool, memory, imagined, weight) <= 1.0


def test_a_remembered_plan_costs_nothing_and_without_memory_the_models_consistency_decides() -> None:
    plan = ["find", "read", "sum"]
    cost = costs.compute_step_cost
    for n in range(1, 4):
        assert costs.measure_similarity(plan[:n], [plan]) == 1.0
        assert cost(calls(plan[:n]), plan[n - 1], 0.2, remembered([plan]), 0.5) == 0.0
    assert cost(calls(plan), "finish", 0.2, remembered([plan]), 0.5) == 0.0, "it ends where the remembered one does"
    assert cost(calls(plan[:2]), "finish", 0.2, remembered([plan]), 0.5) == 0.0, "a shorter one is part of it"
    assert cost(calls(plan), "sum", 0.2, "", 0.9) == pytest.approx(0.8), "1 - share, whatever alpha is"
    assert cost(calls(["find", "sum"]), "sum", 0.25, remembered([["find", "read"]]), 0.5) == pytest.approx(
        (0.5 * 0.75) ** 0.5
    )
    assert costs.measure_similarity(["find", "sum", "read", "sum"], [plan]) == 0.75, (
        "a step too many is no part of the plan"
    )


def test_what_is_left_follows_the_place_in_remembered_plans_and_the_imagined_plan() -> None:
    plans = [["find", "read", "sum", "tell"], ["read", "tell"]]
    assert costs.measure_progress(["find", "read"], plans) == pytest.approx((2 / 4 + 1 / 2) / 2)
    assert costs.measure_progress(["find", "dance"], plans) == 0.0
    assert costs.measure_progress(["read", "x", "read"], [["read", "a", "b", "read"]]) == 1.0, (
        "the second of two occurrences"
    )
    left = costs.estimate_remaining
    assert left(calls(["find", "x", "sum"]), "sum", "", "find, read\n2. sum", 0.3) == pytest.approx(1 / 3)
    assert left(calls(["find"]), "find", "", "find sum", 0.3) == 0.5 and left(calls(["find"]), "find", "", "", 0.3) == 0
    assert left(calls(["find"]), "find", remembered(plans), "find sum", 0.5) == pytest.approx((0.75 * 0.5) ** 0.5)
    assert left(calls(["find"]), "finish", remembered(plans), "find sum", 0.5) == 0.0, "nothing is left at the end"

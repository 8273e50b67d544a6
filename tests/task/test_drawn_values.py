"""Search spaces: every value lies in the space, the same seed draws the same, and demos are drawn or retrieved."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.spaces import TRAIN, space, workflow

from workbench.spec import DomainSpec
from workbench.study import RandomTrial
from workbench.task import Space, draw_demos
from workbench.task.search_space import suggest_value
from workbench.workflow import Workflow


@given(low=st.integers(0, 5), width=st.integers(0, 9), step=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_every_drawn_value_is_one_that_the_domain_contains(low: int, width: int, step: int, seed: int) -> None:
    domain = DomainSpec.model_validate({"int": [low, low + width], "step": step})
    drawn = Space({"nodes.sort.samples": domain}).suggest(RandomTrial(random.Random(seed)), workflow())
    assert domain.contains(drawn["nodes.sort.samples"])


@given(low=st.floats(-10, 10), width=st.floats(0, 10), log=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_floats_too(low: float, width: float, log: bool, seed: int) -> None:
    low = abs(low) + 0.1 if log else low
    domain = DomainSpec.model_validate({"float": [low, low + width], "log": log})
    value = Space({"x.y": domain}).suggest(RandomTrial(random.Random(seed)), workflow())["x.y"]
    assert low - 1e-9 <= value <= low + width + 1e-9


class Asked:
    """A trial that answers with what it was asked."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False, step: float | None = None) -> Any:
        return low, high, log, step

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False, step: int = 1) -> Any:
        return low, high, log, step

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return choices


@pytest.mark.parametrize(
    ("domain", "asked"),
    [
        ({"float": [0.001, 1.0], "log": True}, (0.001, 1.0, True, None)),
        ({"float": [0.1, 1.0], "step": 0.4}, (0.1, 0.9, False, 0.4)),
        ({"int": [1, 9], "log": True}, (1, 9, True, 1)),
        ({"int": [1, 9], "step": 3}, (1, 7, False, 3)),
        ({"choice": ["a", "b"]}, ["a", "b"]),
    ],
)
def test_a_trial_is_asked_within_the_steps_and_on_the_scale_of_the_file(domain: dict, asked: Any) -> None:
    assert suggest_value(Asked(), "x", DomainSpec.model_validate(domain)) == asked


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        ({"choice": ["a", None, 3]}, ["a", None, 3], ["b", 4]),
        ({"int": [1, 9], "step": 2}, [1, 3, 9], [0, 2, 10, 3.0, True, "3"]),
        ({"float": [0.0, 1.0]}, [0, 0.5, 1.0], [-0.1, 1.1, None, True]),
        ({"float": [0.0, 1.0], "step": 0.25}, [0.25, 0.75], [0.3]),
        ({"demos": 4}, [], [[], 3]),
    ],
)
def test_contains(domain: dict, inside: list, outside: list) -> None:
    made = DomainSpec.model_validate(domain)
    assert all(made.contains(v) for v in inside) and not any(made.contains(v) for v in outside)


def test_demos_are_drawn_or_the_nearest_are_shown() -> None:
    found = [
        space(nodes__sort__demos={"demos": 4}).suggest(RandomTrial(random.Random(s)), workflow()) for s in range(60)
    ]
    kinds = set()
    for values in found:
        demos, shown = values.get("nodes.sort.demos", []), values.get("nodes.sort.retrieve", 0)
        if shown:  # for each input the nearest of all training rows
            assert len(demos) == len(TRAIN) and 1 <= shown <= 4
        else:
            assert len(demos) <= 4
        kinds.add("nearest" if shown else "drawn" if demos else "none")
    assert kinds == {"nearest", "drawn", "none"}


def test_nearest_is_left_out_where_the_file_says_so_or_searches_it_itself() -> None:
    for domains in (
        {"nodes__sort__demos": {"demos": 4, "nearest": False}},
        {"nodes__sort__demos": {"demos": 4}, "nodes__sort__retrieve": {"choice": [0]}},
    ):
        for seed in range(30):
            values = space(**domains).suggest(RandomTrial(random.Random(seed)), workflow())
            assert len(values.get("nodes.sort.demos", [])) <= 4 and not values.get("nodes.sort.retrieve")


def test_a_draw_of_demos_ends_the_retrieval_of_the_start() -> None:
    start = workflow(demos=[dict(r.fields) for r in TRAIN], retrieve=3)
    for seed in range(40):
        values = space(nodes__sort__demos={"demos": 4}).suggest(RandomTrial(random.Random(seed)), start)
        demos = values["nodes.sort.demos"]
        assert values["nodes.sort.retrieve"] == 0 or len(demos) == len(TRAIN)


def test_drawn_demos_take_turns_among_the_labels() -> None:
    from workbench.workflow import node_at

    demos = draw_demos(node_at(workflow(), "nodes.sort.demos"), TRAIN, 6, random.Random(1))
    assert sorted(d["label"] for d in demos) == ["a", "a", "a", "b", "b", "b"]


@given(st.permutations(["a", "b", "c"]), st.text(max_size=5))
@settings(max_examples=40, deadline=None)
def test_a_workflows_hash_is_that_of_its_content(keys: list[str], text: str) -> None:
    from pathlib import Path

    one = Workflow({"lm": dict.fromkeys(keys, text), "nodes": {}}, Path("."))
    two = Workflow({"nodes": {}, "lm": dict.fromkeys(sorted(keys), text)}, Path("."))
    other = Workflow({"nodes": {}, "lm": dict.fromkeys(keys, text + ".")}, Path("."))
    assert one.hash == two.hash != other.hash


def test_a_patch_leaves_the_original_as_it_was() -> None:
    start = workflow(instructions="Plain.")
    before = start.hash
    patched = start.patched({"nodes.sort.instructions": "Other.", "nodes.sort.samples": 3})
    assert start.hash == before and start.get("nodes.sort.instructions") == "Plain."
    assert patched.get("nodes.sort.samples") == 3 and patched.hash != before

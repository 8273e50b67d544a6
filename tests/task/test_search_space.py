"""Search spaces: every proposed value lies in the space, conditions hold, a seed decides all proposals."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError
from tests.helpers.scripted import make_workflow

from workbench.errors import SpecError
from workbench.spec import DomainSpec
from workbench.study import RandomTrial
from workbench.task import Example, Space, default_space, draw_demos, labelled_demo, without_blanks
from workbench.task.search_space import DEMO_SETS, check_space
from workbench.workflow import Workflow, node_at
from workbench_optuna.sampler import Searcher

TRAIN = [Example(str(n), {"text": f"row {n}", "label": "abc"[n % 3], "gold": {"label": ["b", "c"]}}) for n in range(30)]
NODE = {"predict": "text -> label: Literal['a', 'b', 'c']", "instructions": "Sort."}


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    return make_workflow({"sort": NODE}, tmp_path_factory.mktemp("search"))


def domain(**settings: Any) -> DomainSpec:
    return DomainSpec.model_validate(settings)


def is_in(value: Any, space: DomainSpec) -> bool:
    if space.choice is not None:
        return any(value == c and type(value) is type(c) for c in space.choice)
    bounds = space.float_ or space.int_
    assert bounds is not None
    steps = (value - bounds[0]) / (space.step or 1)
    whole = space.step is None or abs(steps - round(steps)) < 1e-6
    kind = int if space.int_ else float
    return bounds[0] <= value <= bounds[1] and isinstance(value, kind) and whole


_bound = st.integers(-300, 300).map(lambda n: n / 100)
_above = st.integers(1, 500).map(lambda n: n / 100)
_step = st.one_of(st.none(), st.sampled_from([0.01, 0.03, 0.1, 0.25, 0.7, 3.0]))
_choice = st.one_of(
    st.lists(st.one_of(st.text(max_size=3), st.integers(), st.none()), min_size=1, max_size=5, unique=True),
    st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=1, max_size=4),
)
_domains = st.one_of(
    st.builds(lambda a, b, s: {"float": sorted((a, b)), "step": s}, _bound, _bound, _step),
    st.builds(lambda a, b: {"float": sorted((a, b)), "log": True}, _above, _above),
    st.builds(
        lambda a, b, s: {"int": sorted((a, b)), "step": s},
        st.integers(-20, 20),
        st.integers(-20, 20),
        st.sampled_from([None, 1, 2, 3, 7]),
    ),
    st.builds(lambda a, b: {"int": sorted((a, b)), "log": True}, st.integers(1, 500), st.integers(1, 500)),
    st.builds(lambda c: {"choice": c}, _choice),
)


class Bare:
    """A workflow with nothing in it, for spaces whose addresses no node knows."""

    def get(self, address: str, default: Any = None) -> Any:
        return default

    def patched(self, patch: Any) -> Bare:
        return self


@given(found=st.lists(_domains, min_size=1, max_size=3), seed=st.integers(0, 99))
def test_random_proposals_lie_in_the_space(found: list[dict[str, Any]], seed: int) -> None:
    space = Space({f"a{n}": domain(**d) for n, d in enumerate(found)})
    draw = RandomTrial(random.Random(seed))
    for _ in range(10):
        for address, value in space.suggest(draw, Bare()).items():  # type: ignore[arg-type]
            assert is_in(value, space.domains[address]), (value, space.domains[address])


@settings(max_examples=25)
@given(
    found=st.lists(_domains, min_size=1, max_size=3),
    seed=st.integers(0, 99),
    sampler=st.sampled_from(["tpe", "random", "nsga2", "qmc"]),
)
def test_proposals_of_a_sampler_lie_in_the_space_and_follow_its_seed(
    found: list[dict[str, Any]], seed: int, sampler: str
) -> None:
    space = Space({f"a{n}": domain(**d) for n, d in enumerate(found)})

    def proposals() -> list[dict[str, Any]]:
        searcher = Searcher(space, Bare(), seed=seed, sampler=sampler, startup=4)  # type: ignore[arg-type]
        values = []
        for n in range(8):
            asked = searcher.ask()
            values.append(asked.values)
            for address, value in asked.values.items():
                assert is_in(value, space.domains[address]), (value, space.domains[address])
            searcher.tell(asked, random.Random(n).random() if n != 3 else None, pruned=n == 5)
        return values

    assert proposals() == proposals()


def test_another_seed_proposes_otherwise(workflow: Workflow) -> None:
    space = Space({"nodes.sort.decoding.temperature": domain(float=[0.0, 1.0])})
    for sampler in ("tpe", "random", "nsga2", "qmc"):
        drawn = {str(Searcher(space, workflow, seed=s, sampler=sampler).ask().values) for s in range(5)}
        assert len(drawn) == 5, sampler


def test_a_log_scale_reaches_all_magnitudes_alike() -> None:
    draw = RandomTrial(random.Random(0))
    floats = [math.log10(draw.suggest_float("", 1e-4, 1.0, log=True)) for _ in range(4000)]
    ints = [draw.suggest_int("", 1, 1000, log=True) for _ in range(4000)]
    for low in (-4, -3, -2, -1):
        assert 0.2 < sum(low <= x < low + 1 for x in floats) / 4000 < 0.3
    assert 0.3 < sum(i < 10 for i in ints) / 4000 < 0.5 and max(ints) > 900 and min(ints) == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "exactly one of float, int, choice, demos"),
        ({"float": [0, 1], "int": [0, 1]}, "exactly one"),
        ({"float": [1.0, 0.5]}, "lower bound 1.0 is above"),
        ({"float": [0.0, 1.0], "log": True}, "lower bound above 0"),
        ({"float": [0.1, 1.0], "log": True, "step": 0.1}, "exclude each other"),
        ({"float": [0.0, float("inf")]}, "finite"),
        ({"float": [float("nan"), 1.0]}, "finite"),
        ({"int": [0, 5], "step": 0.5}, "whole number, not 0.5"),
        ({"choice": ["a"], "step": 1}, "belong to float and int"),
        ({"demos": 3, "log": True}, "belong to float and int"),
    ],
)
def test_spaces_that_cannot_be_searched_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        domain(**settings)


# Conditions


@given(order=st.permutations(["a", "b", "c", "d"]), seed=st.integers(0, 50))
def test_conditions_hold_in_every_order_of_the_file(order: list[str], seed: int) -> None:
    all_ = {
        "a": domain(choice=["x", "y"]),
        "b": domain(int=[0, 1], when={"a": "x"}),
        "c": domain(float=[0.0, 1.0], when={"b": 1, "a": "x"}),
        "d": domain(choice=[1], when={"other": 5}),
    }
    space = Space({name: all_[name] for name in order})
    values = space.suggest(RandomTrial(random.Random(seed)), Bare())  # type: ignore[arg-type]
    assert ("b" in values) == (values["a"] == "x")
    assert ("c" in values) == (values.get("b") == 1) and "d" not in values


def test_rings_of_conditions_are_refused() -> None:
    space = Space({"a": domain(int=[0, 1], when={"b": 1}), "b": domain(int=[0, 1], when={"a": 1})})
    with pytest.raises(SpecError, match="conditions of a, b depend on each other"):
        space.order()


def check(workflow: Workflow, space: dict[str, Any]) -> None:
    check_space({a: domain(**d) for a, d in space.items()}, workflow)


def test_addresses_and_bounds_are_checked_against_the_nodes(workflow: Workflow) -> None:
    check(
        workflow,
        {
            "nodes.sort.decoding.temperature": {"float": [0.0, 1.0]},
            "nodes.sort.samples": {"int": [1, 5]},
            "nodes.sort.instructions": {"choice": ["A.", "B."], "when": {"nodes.sort.samples": 3}},
            "nodes.sort.demos": {"demos": 4},
            "lm.model": {"choice": ["openai/a", "openai/b"]},
        },
    )
    for address, found, words in [
        ("nodes.sort.instruction", {"choice": ["A."]}, "instructions"),
        ("nodes.srt.instructions", {"choice": ["A."]}, "Did you mean 'nodes.sort.instructions'"),
        ("budget.calls", {"int": [1, 2]}, "no setting has the address 'budget.calls'"),
        ("nodes.sort.decoding.temperature", {"float": [0.0, 5.0]}, "temperature"),
        ("nodes.sort.samples", {"int": [0, 5]}, "samples"),
        ("nodes.sort.samples", {"int": [1, 5], "when": {"nodes.sort.sampels": 1}}, "sampels"),
    ]:
        with pytest.raises(SpecError, match=words) as raised:
            check(workflow, {address: found})
        assert raised.value.path[:2] == ("search", address)


# Demos


@given(count=st.integers(0, 40), seed=st.integers(0, 50))
def test_demos_are_rows_of_train_and_their_labels_take_turns(count: int, seed: int) -> None:
    node = node_at(make_workflow({"sort": NODE}, Path("/")), "nodes.sort.demos")
    drawn = draw_demos(node, TRAIN, count, random.Random(seed))
    rows = [{"text": e["text"], "label": e["label"]} for e in TRAIN]
    assert len(drawn) == min(count, 30) and all(d in rows for d in drawn)
    assert len({d["text"] for d in drawn}) == len(drawn)
    counts = [sum(d["label"] == x for d in drawn) for x in "abc"]
    assert max(counts) - min(counts) <= 1
    assert drawn == draw_demos(node, TRAIN, count, random.Random(seed))


@pytest.mark.parametrize("blank", ["", "  \n", None])
def test_a_row_with_a_blank_input_is_no_demo_where_most_rows_fill_it(blank: Any, workflow: Workflow) -> None:
    node = node_at(workflow, "nodes.sort.demos")
    odd = [Example(f"odd {n}", {"text": blank, "label": "a"}) for n in range(5)]
    drawn = draw_demos(node, [*odd, *TRAIN], 35, random.Random(0))
    assert len(drawn) == 30 and all(demo["text"] for demo in drawn)
    space = Space({"nodes.sort.demos": domain(demos=40)}, [*odd, *TRAIN])
    values = space.suggest(RandomTrial(random.Random(1), {"nodes.sort.demos": 40}), workflow)
    assert all(demo["text"] for demo in values["nodes.sort.demos"])
    usual = [{"text": blank, "label": "a"}] * 3 + [{"text": "t", "label": "b"}]
    assert without_blanks(node.inputs, usual) == usual, "here a blank is usual"


def test_labels_may_stand_elsewhere_and_rows_without_one_are_no_demos(workflow: Workflow) -> None:
    node = node_at(workflow, "nodes.sort.demos")
    assert labelled_demo(node, TRAIN[0], {"label": "gold.label"}) == {"text": "row 0", "label": "b"}
    assert labelled_demo(node, Example("x", {"text": "t"})) is None
    assert labelled_demo(node, Example("x", {"label": "a"})) is None
    assert draw_demos(node, [Example("x", {"text": "t"}), *TRAIN[:2]], 9, random.Random(0)) != []
    free = [Example(str(n), {"text": f"t{n}", "label": f"text of its own {n}"}) for n in range(9)]
    assert len(draw_demos(node, free, 4, random.Random(0))) == 4


def test_demos_are_searched_as_a_number_and_a_draw(workflow: Workflow) -> None:
    assert list(default_space(workflow)) == ["nodes.sort.demos"]
    space = Space({"nodes.sort.demos": DomainSpec(demos=8, nearest=False)}, TRAIN, seed=3)
    searcher = Searcher(space, workflow, seed=0, sampler="random")
    sizes, sets = set(), {}
    for _ in range(60):
        asked = searcher.ask()
        demos = asked.workflow.get("nodes.sort.demos", [])
        drawn = asked.trial.params
        assert len(demos) == drawn["nodes.sort.demos#count"] <= 8
        assert not demos or 0 <= drawn["nodes.sort.demos#draw"] < DEMO_SETS
        known = sets.setdefault(tuple(drawn.values()), json.dumps(demos))
        assert known == json.dumps(demos), "a draw gives the same demos each time"
        sizes.add(len(demos))
        if not demos:
            assert asked.workflow == workflow and asked.values == {}, "no demos where there were none is no change"
        searcher.tell(asked, 0.5)
    assert len(sizes) == 9
    few = Space(default_space(workflow), TRAIN[:2])
    assert all(
        len(few.suggest(RandomTrial(random.Random(s)), workflow).get("nodes.sort.demos", [])) <= 2 for s in range(30)
    )


def test_unknown_samplers_are_refused_with_a_suggestion(workflow: Workflow) -> None:
    with pytest.raises(SpecError, match="unknown sampler 'nsga'\n.*Did you mean 'nsga2'"):
        Searcher(Space({}), workflow, seed=0, sampler="nsga")

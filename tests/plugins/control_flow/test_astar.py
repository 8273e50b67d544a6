"""`tree` with `order: astar` over plans (ToolChain*): what is found, drawn and refused. Simulated models throughout."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.plans import (
    END,
    call,
    entry,
    made_so_far,
    nodes,
    spells,
    write_tools,
)
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench.errors import SpecError
from workbench.lm import Request, Response

ROW = {"question": "kind 0: begin with x"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tools(tmp_path)


def search(folder: Path, say: Any, row: dict[str, Any] = ROW, **settings: Any) -> tuple[Any, dict[str, Any], Script]:
    """The outcome, the notes of the tree, and the model."""
    script = Script(say)
    database = folder / f"{len(list(folder.glob('*.db')))}.db"
    (outcome,) = run_rows(make_workflow(nodes(**settings), folder), [row], script, database)
    return outcome, next(s.notes for s in outcome.trace.spans if s.node == "plan"), script


def cost_of(outcome: Any) -> float:
    return next(span.outputs["cost"] for span in outcome.trace.spans if span.node == "plan")


def test_a_plan_is_found_and_carried_out_with_results_passed_on(folder: Path) -> None:
    outcome, notes, script = search(folder, spells("abc"))
    assert outcome.prediction["answer"] == "xabc", outcome.message
    assert [c["name"] for c in outcome.prediction["plan"]] == ["add_a", "add_b", "add_c"]
    assert outcome.prediction["plan"][1]["arguments"] == {"text": {"$ref": "1"}}
    assert cost_of(outcome) == 0.0 and notes == {"states": 4, "ended": "until"}
    assert len(script.requests) == 1 + 4 * 6


def wavers(request: Request) -> str:
    """Four of six answers go wrong at the first step; the plan abc gets two."""
    made = made_so_far(request)
    if made is None:
        return "none"
    if not made:
        return call("f" if request.replica // 1000 % 6 < 4 else "a", 0)
    if made[0] == "f":
        return call("e", len(made)) if len(made) < 2 else END
    return spells("abc")(request)


def test_memory_overrules_the_majority_and_without_it_the_majority_wins(folder: Path) -> None:
    outcome, _, _ = search(folder, wavers)
    assert outcome.prediction["answer"] == "xfe"
    paths = [span.outputs["cost"] for span in outcome.trace.spans if span.node == "plan.judge"]
    assert min(paths) == 0.0 and pytest.approx(1 - 4 / 6) in paths and pytest.approx(1 - 2 / 6) in paths
    outcome, _, _ = search(folder, wavers, entries=[entry("kind 0", "abc")])
    assert outcome.prediction["answer"] == "xabc" and cost_of(outcome) == 0.0


def test_shuffled_answers_leave_the_frequencies_and_the_plan_as_they_are(folder: Path) -> None:
    for seed in range(4):
        order = random.Random(seed).sample(range(6), 6)

        def shuffled(request: Request, order: list[int] = order) -> str:
            replica = order[request.replica // 1000 % 6] * 1000
            return wavers(Request(request.messages, temperature=1.0, replica=replica))

        outcome, notes, _ = search(folder, shuffled)
        assert outcome.prediction["answer"] == "xfe" and notes["states"] == 3


def test_each_child_is_judged_once_and_told_how_often_it_was_drawn(folder: Path) -> None:
    outcome, _, script = search(folder, wavers)
    judged = [span for span in outcome.trace.spans if span.node == "plan.judge"]
    shares = [round(span.inputs["share"], 6) for span in judged]
    assert sorted(shares[:2]) == [0.333333, 0.666667] and len(judged) < len(script.requests) / 2


def test_the_estimate_saves_states_and_finds_the_same(folder: Path) -> None:
    """Many ways lead on; imagination points at one. Without it: Dijkstra's algorithm, and no call more."""

    def wide(request: Request) -> str:
        made = made_so_far(request)
        if made is None:
            return "add_a add_b add_c"
        if len(made) == 3:
            return END
        return call("abcdef"[(request.replica // 1000 + len(made)) % 3], len(made))

    led, few, script = search(folder, wide, evaluations=400)
    _, many, longer = search(folder, wide, evaluations=400, rest=None)
    assert led.prediction["answer"] == "xabc" and few["states"] < many["states"], (few, many)
    assert len(script.requests) < len(longer.requests)


def test_a_cheaper_way_that_is_longer_is_taken(folder: Path) -> None:
    """Two costs by hand: one step of 0.9, or three of 0.2. best_first, which counts no steps, takes the short one."""
    (folder / "maze.py").write_text(
        "def go(at: str, way: str) -> str:\n    return at + way\n"
        "def price(at: str) -> float:\n    return 0.9 if at == 'x' else 0.2\n"
        "def ended(at: str) -> bool:\n    return at in ('x', 'yyy')\n"
    )
    tree = {
        "kind": "tree",
        "nodes": {
            "choose": {"predict": "at -> way: Literal['x', 'y']", "decoding": {"temperature": 1.0}},
            "go": {"tool": "python:maze.py:go", "output": "at"},
        },
        "carry": {"at": ""},
        "judge": {
            "kind": "workflow",
            "nodes": {
                "price": {"tool": "python:maze.py:price", "output": "cost"},
                "ended": {"tool": "python:maze.py:ended", "output": "done"},
            },
        },
        "cost": "cost",
        "score": "cost",
        "until": "done",
        "evaluations": 40,
        "branching": 2,
    }

    def say(request: Request) -> str:
        return "xy"[request.replica // 1000 % 2]

    found = {}
    for order in ("astar", "best_first"):
        workflow = make_workflow({"n": {**tree, "order": order}}, folder)
        (outcome,) = run_rows(workflow, [{"q": "1"}], Script(say), folder / f"{order}.db")
        found[order] = outcome.prediction["at"]
    assert found == {"astar": "yyy", "best_first": "x"}


@pytest.mark.parametrize("evaluations", [6, 12, 30])
def test_limits_hold_and_an_unfinished_plan_is_no_answer(evaluations: int, folder: Path) -> None:
    def endless(request: Request) -> str:
        made = made_so_far(request)
        return "none" if made is None else call("abcdef"[request.replica // 1000 % 6], len(made))

    outcome, notes, script = search(folder, endless, evaluations=evaluations, depth=30)
    assert (
        outcome.failure == "steps" and f"none of {evaluations} states is one where tool == 'finish'" in outcome.message
    )
    assert notes["states"] == evaluations == len(script.requests) - 1
    assert make_workflow(nodes(evaluations=evaluations), folder).max_calls == evaluations + 1
    outcome, notes, _ = search(folder, endless, depth=2, branching=2)
    assert outcome.failure == "steps" and notes["states"] == 2 + 4


def test_calls_that_cannot_be_made_are_no_candidates(folder: Path) -> None:
    odd = [
        "tool: dance\narguments: {}",
        'tool: add_a\narguments: {"text": {"$ref": "3"}}',
        "tool: add_a",
        "well, let me think",
        Response('tool: add_a\narguments: {"te', "length", 5, 9, 0.0),
    ]

    def mixed(request: Request) -> Any:
        made, number = made_so_far(request), request.replica // 1000
        if made is None:
            return "none"
        return END if made else odd[number] if number < len(odd) else call("b", 0)

    outcome, notes, _ = search(folder, mixed, branching=8)
    assert outcome.prediction["answer"] == "xb", outcome.message
    assert cost_of(outcome) == 0.0 and notes["states"] == 2, "shares are of the answers that could be read"
    outcome, _, _ = search(folder, lambda request: "no idea")
    assert outcome.failure == "unparsed"
    outcome, _, _ = search(folder, lambda request: END)
    assert outcome.failure == "tool" and "a plan without a call is none" in str(outcome.message)


def test_where_no_answer_can_be_read_the_search_goes_on_elsewhere(folder: Path) -> None:
    """After the popular first step nothing is said that is a call; the plan of the few is found all the same."""

    def say(request: Request) -> str:
        made = made_so_far(request)
        return "hm" if made and made[0] == "f" else wavers(request)

    assert search(folder, say)[0].prediction["answer"] == "xabc"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cost": None}, "name the field of a step's cost, and until"),
        ({"until": None}, "name the field of a step's cost, and until"),
        ({"cost": "price"}, "no node inside 'plan' writes 'price'"),
        ({"rest": "left"}, "no node inside 'plan' writes 'left'"),
        ({"judge": None}, "share is told to the judge, and there is none"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_runs(settings: Any, words: str, folder: Path) -> None:
    with pytest.raises((SpecError, ValueError), match=words):
        make_workflow(nodes(**settings), folder)


def test_a_resumed_run_asks_nobody(folder: Path) -> None:
    workflow = make_workflow(nodes(), folder)
    first, again = Script(wavers), Script(wavers)
    (before,) = run_rows(workflow, [ROW], first, folder / "run.db")
    (after,) = run_rows(workflow, [ROW], again, folder / "run.db")
    assert first.requests and not again.requests
    assert after.prediction == before.prediction and after.trace.spans[0].notes == before.trace.spans[0].notes

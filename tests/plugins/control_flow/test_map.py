"""The node `map`, run by the real runtime with a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.node_runs import run

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.workflow import learnable_addresses, mermaid

FETCH = {
    "map": {
        "branch": "source",
        "cases": {
            "orders": {"predict": "ask -> found", "instructions": "Look into the orders."},
            "faq": {"predict": "ask, question -> found", "instructions": "Look into the FAQ."},
        },
    },
    "over": "plan",
    "as": ["source", "ask"],
    "gather": {"evidence": "found"},
    "max_items": 3,
}


def echo(request: Request) -> str:
    source = "faq" if "FAQ" in str(request.messages[0]["content"]) else "orders"
    return f"found: {source} {str(request.messages[-1]['content']).splitlines()[0]}"


def test_the_children_that_an_answer_names_run_in_its_order(folder: Path) -> None:
    plan = [{"source": "faq", "ask": "a"}, {"source": "orders", "ask": "b"}, {"source": "faq", "ask": "c"}]
    outcome, lm, workflow = run({"n": FETCH}, {"plan": plan, "question": "q"}, folder, echo)
    assert outcome.prediction == {"evidence": ["faq ask: a", "orders ask: b", "faq ask: c"]}
    assert workflow.input_fields == ["plan", "question"] and workflow.max_calls == 3 and len(lm.requests) == 3
    assert "nodes.n.of.cases.faq.instructions" in learnable_addresses(workflow)
    assert '("each of plan")' in mermaid(workflow)


@pytest.mark.parametrize(
    ("plan", "kind", "said"),
    [
        ([{"source": "web", "ask": "a"}], "branch", "no case for source = 'web' and no default; cases: orders, faq"),
        ([{"source": "faq"}], "unparsed", "item 1 of 'plan' lacks one of source, ask"),
        ([{"source": "faq", "ask": "a"}] * 4, "steps", "'plan' has 4 items, and 'n' takes 3 at most"),
        ("look into the faq", "unparsed", "'plan' is no list"),
    ],
)
def test_plans_that_cannot_be_carried_out_fail_the_row(plan: Any, kind: str, said: str, folder: Path) -> None:
    outcome, lm, _ = run({"n": FETCH}, {"plan": plan, "question": "q"}, folder, echo)
    assert outcome.failure == kind and said in str(outcome.message) and not lm.requests


def test_an_empty_list_gives_empty_lists(folder: Path) -> None:
    outcome, lm, _ = run({"n": FETCH}, {"plan": [], "question": "q"}, folder, echo)
    assert outcome.prediction == {"evidence": []} and not lm.requests


def test_without_gather_each_output_is_a_list_and_equal_items_draw_apart(folder: Path) -> None:
    node = {"map": {"predict": "item -> one, two", "decoding": {"temperature": 1.0}}, "over": "items"}
    outcome, _, _ = run({"n": node}, {"items": ["a", "a"]}, folder, lambda r: f"one: {r.replica // 1000}\ntwo: x")
    assert outcome.prediction == {"one": ["0", "1"], "two": ["x", "x"]}
    tools = {"map": {"tool": "python:mytools.add", "arguments": {"a": "item"}}, "over": "items"}
    assert run({"n": tools}, {"items": [1, 1, 1]}, folder)[0].prediction == {"result": [2, 2, 2]}
    assert (folder / "calls.txt").read_text() == "xxx"


MEET = """
import asyncio

here = 0

async def meet(item: int) -> int:
    "Waits until three are here."
    global here
    here += 1
    for _ in range(300):
        if here == 3:
            return item
        await asyncio.sleep(0.01)
    raise TimeoutError(f"{here} came")
"""


def test_items_run_at_the_same_time(folder: Path) -> None:
    (folder / "meeting.py").write_text(MEET)
    node = {"map": {"tool": "python:meeting.meet", "arguments": {"item": "item"}}, "over": "items"}
    assert run({"n": node}, {"items": [3, 1, 2]}, folder)[0].prediction == {"result": [3, 1, 2]}


def test_an_item_that_fails_fails_the_row_when_the_others_have_ended(folder: Path) -> None:
    def say(request: Request) -> str:
        return "no answer" if "ask: b" in str(request.messages[-1]["content"]) else "found: x\nmore: y"

    node = {"map": {"predict": "ask -> found, more"}, "over": "items", "as": "ask"}
    outcome, lm, _ = run({"n": node}, {"items": ["a", "b", "c"]}, folder, say)
    assert outcome.failure == "unparsed" and len(lm.requests) == 3
    assert [span.node for span in outcome.trace.spans] == ["n", "n.of", "n.of", "n.of"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"over": None}, "over is missing: name the field with the list"),
        ({"gather": {"evidence": "fnd"}}, "no node inside 'n' writes 'fnd'. Did you mean 'found'?"),
        ({"of": {"predict": "a -> b"}, "nodes": {"x": {"predict": "a -> b"}}, "gather": {}}, "give either `of`"),
        ({"max_items": 0}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_work_is_said_when_the_file_is_read(change: dict[str, Any], said: str, folder: Path) -> None:
    settings = {"kind": "map", **{("of" if k == "map" else k): v for k, v in FETCH.items()}, **change}
    with pytest.raises(SpecError) as error:
        run({"n": settings}, {"plan": []}, folder)
    assert said in str(error.value).replace("\n  ", ". ")

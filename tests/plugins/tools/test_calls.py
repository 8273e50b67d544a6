"""The `calls` node makes the calls of a list in their order, and fills in what earlier ones returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows

from workbench.errors import SpecError
from workbench.spec import PolicySpec

TOOLS = """
from pathlib import Path

def pay(sum: int) -> dict:
    with (Path(__file__).parent / "paid.txt").open("a") as file:
        file.write(f"{sum}\\n")
    return {"receipt": {"ids": [f"r{sum}"]}}

def send(receipt: str) -> str:
    return f"sent {receipt}"
"""
NODE = {"calls": "plan -> made, results", "tools": ["python:shop.py:pay", "python:shop.py:send"]}


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def paid(folder: Path) -> list[str]:
    return (folder / "paid.txt").read_text().split() if (folder / "paid.txt").exists() else []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(TOOLS)
    return tmp_path


@pytest.mark.parametrize("as_text", [False, True])
def test_a_later_call_takes_what_an_earlier_one_returned(folder: Path, as_text: bool) -> None:
    plan: Any = [call("pay", sum=3), call("send", receipt={"$ref": "1.receipt.ids.0"})]
    outcome, _ = run_node(NODE, {"plan": json.dumps(plan) if as_text else plan}, folder)
    assert outcome.prediction["made"][1] == call("send", receipt="r3")
    assert outcome.prediction["results"] == [{"receipt": {"ids": ["r3"]}}, "sent r3"]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (call("send", receipt={"$ref": "2"}), "call 2: .*refers to no earlier call"),
        (call("send", receipt={"$ref": "x"}), "refers to no earlier call"),
        (call("send", receipt={"$ref": "1", "or": 3}), "refers to no earlier call"),
        (call("send", receipt={"$ref": "1.receipt.ids.1"}), "call 1 returned no receipt.ids.1"),
        (call("send", receipt=json.loads("[" * 40 + "]" * 40)), "nested too deeply"),
        (call("pay", sum="much"), "call 2: pay"),
    ],
)
def test_a_call_that_cannot_be_made_fails_the_row(folder: Path, second: Any, why: str) -> None:
    outcome, _ = run_node(NODE, {"plan": [call("pay", sum=3), second]}, folder)
    assert outcome.failure == "tool" and paid(folder) == ["3"]
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(outcome.message)


def test_nothing_is_called_where_a_call_names_no_tool(folder: Path) -> None:
    for second in (call("steal"), {"name": "send"}, "send"):
        outcome, _ = run_node(NODE, {"plan": [call("pay", sum=3), second]}, folder)
        assert outcome.failure == "tool" and "call 2" in (outcome.message or "") and not paid(folder)


@pytest.mark.parametrize("plan", ["I would pay.", 5, "[cut", None])
def test_what_is_no_list_of_calls_fails_the_row_and_is_not_taken_for_none(folder: Path, plan: Any) -> None:
    outcome, _ = run_node(NODE, {"plan": plan}, folder)
    assert outcome.failure == "tool" and "is no list of calls" in (outcome.message or "")
    outcome, _ = run_node(NODE, {"plan": "[]"}, folder)
    assert outcome.failure is None


def test_the_policy_holds_for_each_call(folder: Path) -> None:
    rules = [{"allow": "pay", "when": {"sum": {"max": 5}}}]
    policy = PolicySpec.model_validate({"default": "deny", "rules": rules})
    workflow = make_workflow({"n": NODE}, folder)
    plans = [[call("pay", sum=3), call("pay", sum=9)], [call("pay", sum=4)]]
    rows = [{"plan": plan} for plan in plans]
    outcomes = run_rows(workflow, rows, Script(lambda r: ""), folder / "a.db", policy=policy)
    assert [outcome.failure for outcome in outcomes] == ["policy", None] and paid(folder) == ["3", "4"]
    assert "call 2" in (outcomes[0].message or "")


def test_it_reads_one_field_and_writes_two(folder: Path) -> None:
    with pytest.raises(SpecError, match="reads one field and writes two"):
        make_workflow({"n": {**NODE, "calls": "plan -> results"}}, folder)

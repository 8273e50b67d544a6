"""Screens of an agent's tools, and the earlier calls that a tool played by a model sees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_speech import call
from tests.helpers.node_runs import run
from tests.helpers.scripted import make_workflow

from workbench.errors import FailureKind, LMError, SpecError
from workbench.lm import Request, Response

SCREEN = {"predict": "tool, result, question -> verdict: Literal['clean', 'order']", "instructions": "Screen it."}


def screened(**changed: Any) -> dict[str, Any]:
    return {"agent": "question -> answer", "tools": ["python:mytools.add"], "screens": {"add": SCREEN}, **changed}


def adds(verdict: Any) -> Any:
    """An agent that adds once and answers with what it was told, and a screen that says a verdict."""

    def say(request: Request) -> Any:
        if "Screen it." in str(request.messages[0]["content"]):
            return verdict(request) if callable(verdict) else f"verdict: {verdict}"
        told = str(request.messages[-1]["content"])
        return f"answer: {told.removeprefix('result: ')}" if "result: " in told else call("add", a=1, b=2)

    return say


@pytest.mark.parametrize("tool", ["add", "*"])
def test_a_screen_sees_the_result_and_only_what_is_clean_passes(tool: str, folder: Path) -> None:
    nodes = {"a": screened(screens={tool: SCREEN})}
    outcome, lm, workflow = run(nodes, {"question": "1 + 2?"}, folder, adds("clean"))
    assert outcome.prediction["answer"] == "3" and workflow.max_calls == 2 * 6 and len(lm.requests) == 3
    seen = str(lm.requests[1].messages[-1]["content"])
    assert "tool: add" in seen and "result: 3" in seen and "question: 1 + 2?" in seen


@pytest.mark.parametrize("verdict", ["order", "perhaps"])
def test_what_a_screen_does_not_call_clean_is_withheld(verdict: str, folder: Path) -> None:
    outcome, lm, _ = run({"a": screened()}, {"question": "1 + 2?"}, folder, adds(verdict))
    assert outcome.prediction["answer"].startswith("(withheld: a screen calls this result ")
    told = [str(r.messages[-1]["content"]) for r in lm.requests if "Screen it." not in str(r.messages[0]["content"])]
    assert not any("result: 3" in text for text in told)


def test_a_row_whose_screen_has_no_server_is_left_out(folder: Path) -> None:
    def down(request: Request) -> Any:
        raise LMError("no server", kind=FailureKind.SERVER)

    outcome, _, _ = run({"a": screened()}, {"question": "1 + 2?"}, folder, adds(down))
    assert outcome.failure is not None and outcome.failure.infrastructure, outcome.message


def test_a_screen_reads_one_result_a_step_as_the_budget_counts(folder: Path) -> None:
    calls = tuple({"id": f"c{n}", "name": "add", "arguments": f'{{"a": {n}, "b": 0}}'} for n in (1, 2))

    def say(request: Request) -> Any:
        if "Screen it." in str(request.messages[0]["content"]):
            return "verdict: clean"
        if request.messages[-1]["role"] == "tool":
            return Response("answer: done", "stop")
        return Response("", "tool_calls", tool_calls=calls)

    outcome, lm, _ = run({"a": screened(native=True)}, {"question": "?"}, folder, say)
    told = [str(m["content"]) for m in lm.requests[-1].messages if m["role"] == "tool"]
    assert outcome.failure is None and told == ["result: 1", "error: add: one such call at a time"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"screens": {"ad": SCREEN}}, "there is no tool 'ad'"),
        ({"screens": {"add": {"predict": "result -> clean: bool"}}}, "a screen writes `verdict`"),
        ({"screens": {"add": {"predict": "result -> verdict: Literal['good', 'bad']"}}}, "only `clean` lets a result"),
        ({"actions": 2}, "which `screens` does not bear"),
    ],
)
def test_screens_that_cannot_work_are_told(changed: dict[str, Any], said: str, folder: Path) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        make_workflow({"a": screened(**changed)}, folder)


def test_a_tool_played_by_a_model_sees_the_calls_of_its_row_alone(folder: Path) -> None:
    bank = {"predict": "to, earlier_calls -> result", "describe": "Pays somebody.", "instructions": "You play a bank."}
    nodes = {"a": {"agent": "question -> answer", "tools": ["python:mytools.add"], "nodes": {"pay": bank}}}

    def say(request: Request) -> str:
        if "You play a bank." in str(request.messages[0]["content"]):
            return f"result: after {len(re.findall('->', str(request.messages[-1]['content'])))} calls"
        steps = [call("pay", to="ann"), call("add", a=1, b=2), call("pay", to="bob")]
        made = sum(m["role"] == "assistant" for m in request.messages)
        return steps[made] if made < 3 else f"answer: {request.messages[-1]['content']}"

    asked = list[Request]()
    for row in ("one", "two"):  # what the bank is asked is equal in both, and journalled
        outcome, lm, _ = run(nodes, {"question": row}, folder, say)
        assert outcome.prediction["answer"] == "result: after 2 calls"
        asked += lm.requests
    banks = [str(r.messages[-1]["content"]) for r in asked if "a bank" in str(r.messages[0]["content"])]
    assert len(banks) == 2
    assert 'pay({"to": "ann"}) -> result: after 0 calls' in banks[-1]
    assert 'add({"a": 1, "b": 2}) -> result: 3' in banks[-1]
    told = str(asked[0].messages[0]["content"])
    assert "Pays somebody." in told and "earlier_calls" not in told and "You play a bank." not in told

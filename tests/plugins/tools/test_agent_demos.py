"""Demos of an agent keep the calls between question and answer: without them they teach to answer without tools."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import pytest
from tests.helpers.planted import PlantedLM
from tests.helpers.scripted import make_workflow, run_node

from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench.proof import Report
from workbench.run import Options, optimize
from workbench.workflow import EXCHANGE
from workbench_memory.entry_log import Bank, Site
from workbench_memory.optimizer import Memory, Plan, _Search

TOOL = """
def look(key: str) -> str:
    "The colour of a thing."
    return {"a": "red", "b": "blue", "c": "green", "d": "black"}[key[0]]
"""
AGENT = {"agent": "question -> answer", "tools": ["python:things.py:look"], "max_steps": 3}
EXCHANGED = [
    {"role": "assistant", "content": 'I look.\ncall: {"tool": "look", "arguments": {"key": "b1"}}'},
    {"role": "user", "content": "result: blue"},
]
DEMO = {"question": "colour of b1?", "answer": "blue"}


def asked(request: Request) -> list[str]:
    """What stands behind the last question."""
    texts = [str(m["content"]) for m in request.messages]
    last = max(i for i, text in enumerate(texts) if text.startswith("question: "))
    return texts[last:]


class Copier(PlantedLM):
    """Not a model: it does what the demos do. Without demos it looks the thing up now and then."""

    async def complete(self, request: Request) -> Response:
        self.requests += 1
        question, *since = asked(request)
        key = question.split()[-1].rstrip("?")
        before = [str(m["content"]) for m in request.messages[: -len(since) - 1] if m["role"] == "assistant"]
        now_and_then = hashlib.sha256(key.encode()).digest()[0] % 4 == 0
        if since:
            text = f"answer: {since[-1].removeprefix('result: ')}"
        elif any("call:" in text for text in before) or (not before and now_and_then):
            text = f'call: {{"tool": "look", "arguments": {{"key": "{key}"}}}}'
        else:
            text = "answer: white"
        return Response(text, "stop", 9, 3, 0.0)


def main(folder: Path, optimizer: Any) -> Report:
    (folder / "things.py").write_text(TOOL)
    colours = {"a": "red", "b": "blue", "c": "green", "d": "black"}
    for name, count in (("train", 40), ("val", 20), ("test", 30)):
        rows = [
            {"question": f"colour of {'abcd'[i % 4]}{name}{i}?", "answer": colours["abcd"[i % 4]]} for i in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "look",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
                "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
                "metric": "exact_match(answer)",
                "nodes": {"n": AGENT},
                "optimize": [optimizer],
                "budget": {"calls": 1500},
            }
        )
    )
    return optimize(
        file, database=folder / "run.db", pool=Copier(lambda r: 0.0), options=Options(out=str(folder / "out.yaml"))
    )


OPTIMIZERS = {
    "bootstrap": {"bootstrap": {"trials": 8}},
    "memory": {"memory": {"trials": 2}},
    "dspy": {"dspy_bootstrap": {"candidates": 4, "max_labeled_demos": 0}},
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_demos_teach_to_call_the_tool(optimizer: Any, tmp_path: Path) -> None:
    """The copier calls the tool only where a demo shows it: bare demos take even its own calls away."""
    report = main(tmp_path, optimizer)
    assert report.status in ("finished", "budget"), report.error
    demos = report.winner.get("nodes.n.demos")
    shown = [demo for demo in demos if demo.get(EXCHANGE)]
    assert shown and report.best["test"]["score"] == 1.0 and report.gain_shown
    for demo in shown:
        call, result = demo[EXCHANGE]
        key = demo["question"].split()[-1].rstrip("?")
        assert call == {"role": "assistant", "content": f'call: {{"tool": "look", "arguments": {{"key": "{key}"}}}}'}
        assert result == {"role": "user", "content": f"result: {demo['answer']}"}
    assert EXCHANGE in (tmp_path / "out.yaml").read_text(), "the result file keeps it"


def test_a_store_is_tried_again_when_it_has_got_an_exchange() -> None:
    """A labelled row becomes another demo with the calls that led to its answer, so the same keys are another store."""
    bank = Bank(Site("nodes.n.demos", ("question",), ("answer",), recall=False, retrieves=False))
    key = bank.add("example", "train:1", {"question": "q"}, {"answer": "a"})
    search, store = _Search(Memory.model_validate({}), cast(Any, None), [bank]), (Plan((key,), "utility", 8),)
    before = search._mark(store)
    assert bank.add("example", "trial:0:1", {"question": "q"}, {"answer": "a"}, exchange=EXCHANGED) == key
    assert search._mark(store) != before
    bank.add("example", "trial:1:1", {"question": "q"}, {"answer": "a"}, exchange=EXCHANGED[:1])
    assert bank.entries[key]["exchange"] == EXCHANGED and bank.entries[key]["source"] == "trial:0:1", (
        "the first one stays"
    )


def first_request(folder: Path, **node: Any) -> tuple[dict[str, Any], ...]:
    (folder / "things.py").write_text(TOOL)
    _, script = run_node({**AGENT, **node}, {"question": "colour of a9?"}, folder, lambda r: "answer: red")
    return tuple(dict(m) for m in script.requests[0].messages)[1:]


def test_an_exchange_is_shown_as_it_happened(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "question: colour of a9?"}
    bare = [{"role": "user", "content": "question: colour of b1?"}, {"role": "assistant", "content": "answer: blue"}]
    assert list(first_request(tmp_path, demos=[DEMO])) == [*bare, asked], "as ever, without one"
    assert list(first_request(tmp_path, demos=[{**DEMO, EXCHANGE: EXCHANGED}])) == [bare[0], *EXCHANGED, bare[1], asked]


NATIVE = [
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"key": "b1"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "result: blue"},
]


def test_native_calls_are_shown_as_such_or_as_text(tmp_path: Path) -> None:
    demos = [{**DEMO, EXCHANGE: NATIVE}]
    assert list(first_request(tmp_path, demos=demos, native=True))[1:3] == NATIVE
    assert list(first_request(tmp_path, demos=demos))[1:3] == [
        {"role": "assistant", "content": 'call: {"tool": "look", "arguments": {"key": "b1"}}'},
        {"role": "user", "content": "result: blue"},
    ]


def test_calls_without_a_text_are_shown_as_text(tmp_path: Path) -> None:
    """Some providers send such a turn without `content`, or with null."""
    bare = {key: value for key, value in NATIVE[0].items() if key != "content"}
    for turn in (bare, {**bare, "content": None}):
        demos = [{**DEMO, EXCHANGE: [turn, NATIVE[1]]}]
        assert (
            first_request(tmp_path, demos=demos)[1]["content"] == 'call: {"tool": "look", "arguments": {"key": "b1"}}'
        )


def test_a_demo_is_made_of_the_last_run_of_a_question_that_a_demo_asks_too(tmp_path: Path) -> None:
    (tmp_path / "things.py").write_text(TOOL)
    node = {**AGENT, "demos": [{**DEMO, EXCHANGE: EXCHANGED}]}
    outcome, _ = run_node(
        node,
        {"question": "colour of b1?"},
        tmp_path,
        lambda r: "answer: blue" if len(asked(r)) > 1 else 'call: look("b1")',
    )
    made = make_workflow({"n": node}, tmp_path).enabled_nodes["n"].demo(outcome.trace.spans[0])
    assert made == {
        **DEMO,
        EXCHANGE: [{"role": "assistant", "content": 'call: look("b1")'}, {"role": "user", "content": "result: blue"}],
    }


@pytest.mark.parametrize("wrong", ["call: look", [{"role": "system", "content": "x"}], [{"role": "user"}], [1]])
def test_what_is_no_list_of_messages_is_refused_at_its_place(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="_exchange is a list of messages") as caught:
        first_request(tmp_path, demos=[{**DEMO, EXCHANGE: wrong}])
    assert "role: assistant" in (caught.value.hint or "")

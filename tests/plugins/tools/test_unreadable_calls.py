"""Calls that do not stand on one line, in the nodes that read them: agent and states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, run_node
from tests.plugins.tools.test_simulated_user import talk

from workbench.lm import Request
from workbench.run import Options, optimize
from workbench.workflow import ExampleRun

TOOLS = """
def colour(key: str) -> str:
    "The colour of a thing."
    return {"a": "blue"}[key]
"""
PRETTY = 'I look it up.\ncall: {\n  "tool": "colour",\n  "arguments": {"key": "a"}\n}'
SHAPES = [
    PRETTY,
    'call: colour(key="a")',
    'call: {"tool": "colour", "arguments": {"key": "a"}} to know the colour',
    '```json\n{"tool": "colour", "arguments": {"key": "a"}}\n```',
]
BROKEN = "call: colour key=a"
ROW = {"question": "what colour is a?"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "things.py").write_text(TOOLS)
    return tmp_path


def in_turn(*answers: str) -> Any:
    left = list(answers)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def unreadable(outcome: ExampleRun) -> int:
    return outcome.trace.unreadable_calls


AGENT = {"agent": "question -> answer", "tools": ["python:things.py:colour"], "max_steps": 4}
MACHINE = {
    "states": {
        "go": {
            "tools": ["python:things.py:colour"],
            "next": [{"when": {"regex": "^(result|error)"}, "to": "go"}, "end"],
        }
    },
    "signature": "question -> answer",
    "start": "go",
    "max_steps": 4,
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("node", [AGENT, MACHINE], ids=["agent", "states"])
def test_a_call_in_another_shape_calls_the_tool(node: dict[str, Any], shape: str, folder: Path) -> None:
    outcome, script = run_node(node, ROW, folder, in_turn(shape, "answer: blue"))
    assert outcome.prediction == {"answer": "blue"} and len(script.requests) == 2
    assert script.requests[1].messages[-1]["content"] == "result: blue"
    assert unreadable(outcome) == 0


@pytest.mark.parametrize("node", [AGENT, MACHINE], ids=["agent", "states"])
def test_what_cannot_be_read_is_told_and_counted(node: dict[str, Any], folder: Path) -> None:
    outcome, script = run_node(node, ROW, folder, in_turn(BROKEN, SHAPES[1], "answer: blue"))
    told = script.requests[1].messages[-1]["content"]
    assert "not a JSON object" in told and 'call: {"tool": "colour", "arguments": {"key": ...}}' in told
    assert outcome.prediction == {"answer": "blue"} and unreadable(outcome) == 1
    seen = next(span.notes["unreadable_calls"] for span in outcome.trace.spans if "unreadable_calls" in span.notes)
    assert seen == [{"said": BROKEN, "why": "its arguments are not a JSON object"}]


@pytest.mark.parametrize("node", [AGENT, MACHINE], ids=["agent", "states"])
def test_what_may_be_an_answer_is_told_once_and_then_accepted(node: dict[str, Any], folder: Path) -> None:
    """A model that insists meant it as the answer; but it is counted."""
    outcome, script = run_node(node, ROW, folder, in_turn(BROKEN))
    assert outcome.prediction == {"answer": BROKEN} and len(script.requests) == 2 and unreadable(outcome) == 2


@pytest.mark.parametrize("node", [AGENT, MACHINE], ids=["agent", "states"])
def test_a_broken_line_of_the_form_asked_for_is_never_the_answer(node: dict[str, Any], folder: Path) -> None:
    outcome, script = run_node(node, ROW, folder, in_turn('call: {"tool": colour}'))
    assert outcome.failure == "steps" and len(script.requests) == 4 and unreadable(outcome) == 4


@pytest.mark.parametrize("node", [AGENT, MACHINE], ids=["agent", "states"])
def test_an_answer_that_mentions_a_call_is_the_answer(node: dict[str, Any], folder: Path) -> None:
    said = 'answer: write call: colour(key="a")'
    outcome, script = run_node(node, ROW, folder, in_turn(said))
    assert len(script.requests) == 1 and unreadable(outcome) == 0
    assert outcome.prediction["answer"].endswith('colour(key="a")')


def test_a_registration_may_have_another_shape_too(folder: Path) -> None:
    outcome, script = run_node(
        {**AGENT, "register": "lazy"}, ROW, folder, in_turn('call: register("colour")', PRETTY, "answer: blue")
    )
    assert outcome.prediction == {"answer": "blue"}
    assert script.requests[1].messages[-1]["content"].startswith("registered. - colour(")


def test_an_agent_may_think_before_it_speaks(folder: Path) -> None:
    node = {**AGENT, "user": {"knows": ["home"]}}
    asked: list[str] = []

    def say(request: Request) -> str:
        if "You play a user" in str(request.messages[0]["content"]):
            asked.append(str(request.messages[-1]["content"]))
            return "Oslo. DONE"
        return "answer: Oslo" if asked else "I do not know the town.\nsay: Where do you live?"

    outcome, _, _ = talk(folder, say, {**node, "agent": "wish -> answer", "tools": []})
    assert asked == ["Where do you live?"] and outcome.prediction == {"answer": "Oslo"}


def test_a_call_that_is_quoted_to_the_user_is_said(folder: Path) -> None:
    heard: list[str] = []
    quoted = 'say: I would write this. May I?\n```json\n{"tool": "colour", "arguments": {"key": "a"}}\n```'

    def say(request: Request) -> str:
        if "You play a user" in str(request.messages[0]["content"]):
            heard.append(str(request.messages[-1]["content"]))
            return "Yes. DONE"
        return "answer: Oslo" if heard else quoted

    outcome, _, _ = talk(folder, say, {**AGENT, "agent": "wish -> answer", "user": {"knows": ["home"]}})
    assert heard == [quoted.removeprefix("say: ")] and "tools" not in outcome.trace.spans[0].notes


def test_a_report_says_that_calls_could_not_be_read(folder: Path) -> None:
    rows = [{"question": f"what colour is a? {i}", "answer": "blue"} for i in range(30)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "colours",
                "lm": {"model": "openai/scripted", "attempts": 1},
                "metric": "exact_match(answer)",
                "data": {"file": "rows.jsonl", "split": {"train": 10, "val": 10, "test": 10}},
                "nodes": {"n": AGENT},
                "optimize": ["random"],
                "budget": {"calls": 200},
                "proof": {"when_unchanged": "test"},
            }
        )
    )

    def say(request: Request) -> str:
        return "answer: blue" if str(request.messages[-1]["content"]).startswith("error: ") else BROKEN

    options = Options(out=str(folder / "out.yaml"))
    report = optimize(file, database=folder / "a.db", pool=Script(say), options=options)
    assert report.best["test"]["score"] == 1.0, report.error
    assert any("in 10 of the 10 test rows" in w and "wrote 10 tool calls" in w for w in report.warnings)
    options = Options(out=str(folder / "clean.yaml"))
    clean = optimize(file, database=folder / "b.db", pool=Script(lambda r: "answer: blue"), options=options)
    assert not any("tool calls that could not be read" in w for w in clean.warnings)

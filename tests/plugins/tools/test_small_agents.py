"""Two settings of agents for small models: a first thought, and actions that agree with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import run_node

from workbench.errors import SpecError
from workbench.lm import Request
from workbench_tools.consistency import Attempt, choose_attempt

TOOLS = """
def half(n: int) -> int:
    'Half of n.'
    if n % 2: raise ValueError('odd')
    return n // 2
"""
CALL = 'call: {"tool": "half", "arguments": {"n": %s}}'
STEPS = "Half of it is wanted.\n\nSo 8 / 2 = 4.\n\nanswer: 4"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def agent(**settings: Any) -> dict[str, Any]:
    return {"agent": "q -> answer", "tools": ["python:tools.half"], **settings}


def last(request: Request) -> str:
    return str(request.messages[-1]["content"])


@pytest.mark.parametrize("repeats", [False, True], ids=["goes on", "repeats it"])
def test_the_first_answer_goes_on_from_the_first_step(folder: Path, repeats: bool) -> None:
    thought = "Thought: Half of it is wanted.\n\n"

    def say(request: Request) -> str:
        if "Think step by step." in str(request.messages[0]["content"]):
            return STEPS
        if request.messages[-1]["role"] == "assistant":
            return (thought if repeats else "") + CALL % 8
        return "answer: 4"

    outcome, script = run_node(agent(first_thought=True), {"q": "half of 8"}, folder, say)
    assert outcome.prediction == {"answer": "4"}
    without_tools, first, second = script.requests
    assert "half" not in str(without_tools.messages[0]["content"]) and without_tools.stop == ("\n\n",)
    assert dict(first.messages[-1]) == {"role": "assistant", "content": thought}
    # Its own words once, and in the first turn alone.
    assert [m["content"] for m in second.messages if m["role"] == "assistant"] == [thought + CALL % 8]
    assert last(second) == "result: 4"


def test_without_a_step_nothing_is_put_in_its_mouth(folder: Path) -> None:
    def say(request: Request) -> str:
        return "\n" if "Think step" in str(request.messages[0]["content"]) else "answer: 4"

    outcome, script = run_node(agent(first_thought=True), {"q": "8"}, folder, say)
    assert outcome.prediction == {"answer": "4"} and script.requests[1].messages[-1]["role"] == "user"


def test_the_most_frequent_result_of_calls_that_succeed_counts(folder: Path) -> None:
    """Of six answers the three that fail agree, and are dropped; of the others two agree."""
    drawn = [CALL % 7, CALL % 7, CALL % 7, CALL % 2, CALL % 8, "maybe\n" + CALL % 8]

    def say(request: Request) -> str:
        return drawn[request.replica] if last(request) == "q: 8" else f"answer: {last(request)}"

    outcome, script = run_node(agent(actions=6), {"q": "8"}, folder, say)
    assert outcome.prediction == {"answer": "result: 4"}
    assert [m["content"] for m in script.requests[6].messages[2:]] == [CALL % 8, "result: 4"]  # the first of the two
    assert len(outcome.trace.spans[0].notes["tools"]) == 6  # the winner's call was not made again
    alone, _ = run_node(agent(actions=1), {"q": "8"}, folder, say)
    assert alone.prediction == {"answer": "error: half: ValueError: odd"}  # the control: the first answer alone fails


def test_answers_vote_with_their_outputs(folder: Path) -> None:
    drawn = ["answer: 5", "answer: 4", " answer:  4 "]
    outcome, _ = run_node(agent(actions=3), {"q": "8"}, folder, lambda r: drawn[r.replica])
    assert outcome.prediction == {"answer": "4"}


def test_of_equally_frequent_outcomes_the_first_counts_and_without_any_the_first_answer() -> None:
    def tried(*outcomes: str | None) -> list[Attempt]:
        return [Attempt(None, outcome, ()) for outcome in outcomes]  # type: ignore[arg-type]

    some = tried(None, "b", "a", "a", "b")
    assert choose_attempt(some) is some[1]
    none = tried(None, None)
    assert choose_attempt(none) is none[0]


@pytest.mark.parametrize(("other", "name"), [({"user": {}}, "user"), ({"register": "lazy"}, "register")])
def test_actions_are_refused_where_an_answer_has_effects(folder: Path, other: dict[str, Any], name: str) -> None:
    with pytest.raises(SpecError, match=f"which `{name}` does not bear"):
        run_node(agent(actions=2, **other), {"q": "8"}, folder)
    with pytest.raises(SpecError, match="at temperature 0"):
        run_node(agent(actions=2, temperature=0.0), {"q": "8"}, folder)


def test_most_calls_count_both(folder: Path) -> None:
    from tests.helpers.scripted import make_workflow

    workflow = make_workflow({"n": agent(actions=4, first_thought=True, max_steps=3)}, folder)
    assert workflow.max_calls == 4 * 3 + 1


@pytest.mark.training
def test_local_models_continue_the_assistants_last_message() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from types import SimpleNamespace

    from tests.helpers.tiny_lm import make_tokenizer

    from workbench_engine.generation import Generator
    from workbench_nano.model import Nano, render

    asked, begun = [{"role": "user", "content": "ab"}], {"role": "assistant", "content": "cd"}
    tokenizer, nano = make_tokenizer(), Nano.load()
    ids = Generator.encode(SimpleNamespace(tokenizer=tokenizer, template_settings={}), [*asked, begun])  # type: ignore[arg-type]
    assert tokenizer.decode(ids) == "<u>ab<end><a>cd"
    assert nano.prompt_ids([*asked, begun]) == [*nano.prompt_ids(asked), *nano.encode("cd")]
    assert render([*asked, begun]) == render(asked) + "cd"

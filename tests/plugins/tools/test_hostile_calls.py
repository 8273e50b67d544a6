"""Calls of a model that means harm: names that look like a denied tool's, and arguments that nothing can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.node_runs import run

from workbench.lm import Request, Response

TOOL = """
from pathlib import Path

def pay(amount: int, to: str = "ann") -> str:
    Path({mark!r}).write_text(str(amount))
    return "paid"
"""
NODE = {"a": {"agent": "question -> answer", "tools": ["python:paying.py:pay"], "native": True, "max_steps": 3}}


def outcome_of(folder: Path, name: str, arguments: Any) -> tuple[Any, Any, bool]:
    """(outcome, model, whether the tool was called) of an agent whose model makes this call, then answers."""
    mark = folder / "called"
    (folder / "paying.py").write_text(TOOL.format(mark=str(mark)))

    def say(request: Request) -> Response:
        if request.messages[-1]["role"] == "tool":
            return Response("answer: told", "stop")
        return Response("", "tool_calls", tool_calls=({"id": "1", "name": name, "arguments": arguments},))

    outcome, lm, _ = run(NODE, {"question": "?"}, folder, say)
    return outcome, lm, mark.exists()


LIKE_PAY = (
    "PAY",
    "Pay",
    "ｐａｙ",
    "p\u200bay",
    "pаy",
    "pay\0",
    "\x1b[31mpay",
)


@pytest.mark.parametrize("name", LIKE_PAY)
def test_a_name_that_looks_like_a_tool_calls_none(name: str, tmp_path: Path) -> None:
    outcome, lm, called = outcome_of(tmp_path, name, {"amount": 5})
    assert not called and outcome.prediction == {"answer": "told"}
    assert "there is no tool" in str(lm.requests[1].messages[-1]["content"])


@pytest.mark.parametrize("name", ["pay ", " pay", "pay()", "functions.pay", "default_api:pay", "pay<|end|>"])
def test_a_decorated_name_calls_its_tool(name: str, tmp_path: Path) -> None:
    _, lm, called = outcome_of(tmp_path, name, {"amount": 5})
    assert called and lm.requests[1].messages[-2]["tool_calls"][0]["function"]["name"] == "pay"


def test_arguments_that_nothing_can_read_are_told_to_the_model_and_call_nothing(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, arguments in enumerate(
        [
            "[" * 20_000,
            '{"amount": 1' + "0" * 5000 + "}",
            '{"amount": ' * 2000,
            "[1, 2]",
            "5",
            "null",
            '{"amount": 5',
            [1, 2],
            5,
            {"amount": 5, "self": 1},
            {"__class__": 1},
            {"amount": 5, "amount ": 6},
            {},
        ]
    ):
        with subtests.test(arguments=arguments):
            folder = tmp_path / str(number)
            folder.mkdir()
            outcome, lm, called = outcome_of(folder, "pay", arguments)
            assert not called and outcome.prediction == {"answer": "told"}, outcome
            told = str(lm.requests[1].messages[-1]["content"])
            assert told and len(told) < 3000

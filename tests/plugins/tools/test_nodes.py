"""The nodes tool and agent, run by the real runtime with a scripted model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.helpers.node_runs import run

from workbench.lm import Request, Response


def test_tool_calls_a_function_and_is_journalled(folder: Path) -> None:
    nodes = {"sum": {"tool": "python:mytools.add", "constants": {"b": 5}, "output": "total"}}
    outcome, _, _ = run(nodes, {"a": 2}, folder, times=3)
    assert outcome.prediction == {"total": 7} and outcome.failure is None
    assert (folder / "calls.txt").read_text() == "x", "a replay called the tool again"


def test_tool_may_be_a_coroutine_function(folder: Path) -> None:
    outcome, _, _ = run({"t": {"tool": "python:mytools.py:slow"}}, {"text": "hi"}, folder)
    assert outcome.prediction == {"result": {"said": "HI"}}


def test_an_exception_in_a_tool_is_a_typed_failure(folder: Path) -> None:
    outcome, _, _ = run({"t": {"tool": "python:mytools.broken"}}, {"text": "hi"}, folder)
    assert outcome.failure == "tool" and "ZeroDivisionError" in outcome.message


MCP_SERVER = """
from mcp.server import MCPServer
server = MCPServer("numbers")

@server.tool()
def double(x: int) -> int:
    return 2 * x

@server.tool()
def fail(x: int) -> int:
    raise ValueError("never")

server.run()
"""


@pytest.mark.slow
def test_mcp_tools_are_called_over_stdio(folder: Path) -> None:
    pytest.importorskip("mcp.server.mcpserver")
    (folder / "server.py").write_text(MCP_SERVER)
    good, _, _ = run({"t": {"tool": "mcp:python server.py#double", "arguments": {"x": "x"}}}, {"x": 21}, folder)
    assert good.failure is None and "42" in json.dumps(good.prediction["result"]), good
    bad, _, _ = run({"t": {"tool": "mcp:python server.py#fail", "arguments": {"x": "x"}}}, {"x": 1}, folder)
    assert bad.failure == "tool" and "Error executing tool fail" in bad.message


def test_agent_calls_a_tool_reads_its_result_and_answers(folder: Path) -> None:
    def say(request: Request) -> str:
        last = request.messages[-1]["content"]
        if "result: 7" in last:
            return "answer: 7"
        return 'I need the tool.\ncall: {"tool": "add", "arguments": {"a": 3, "b": 4}}'

    nodes = {"a": {"agent": "question -> answer: int", "tools": ["python:mytools.add"]}}
    outcome, lm, _ = run(nodes, {"question": "3 + 4?"}, folder, say)
    assert outcome.prediction == {"answer": 7}
    span = outcome.trace.spans[0]
    assert span.agent == "a" and span.turn == 1 and span.notes["tools"][0]["result"] == "result: 7"
    assert "Adds two numbers." in lm.requests[0].messages[0]["content"]


def test_agent_is_told_of_wrong_calls_and_stops_at_its_limit(folder: Path) -> None:
    nodes = {"a": {"agent": "question -> answer: int", "tools": ["python:mytools.add"], "max_steps": 3}}
    outcome, lm, _ = run(nodes, {"question": "?"}, folder, lambda r: 'call: {"tool": "sub", "arguments": {}}')
    assert outcome.failure == "steps" and len(lm.requests) == 3
    assert "there is no tool 'sub'" in lm.requests[1].messages[-1]["content"]


@pytest.mark.parametrize(
    "said",
    [
        'I add them.\n{"name": "add", "arguments": {"a": 4, "b": 5}}',
        'I add them.\n```json\n{"name": "add", "arguments": {"a": 4, "b": 5}}\n```',
        'answer: {"name": "add", "arguments": {"a": 4, "b": 5}}',
    ],
)
def test_a_native_call_that_the_server_did_not_read_goes_back_as_one(said: str, folder: Path) -> None:
    """llama.cpp gives a call in bare JSON as text. As a user's turn, its result is no tool's answer to the model."""

    def say(request: Request) -> Response:
        if request.messages[-1]["role"] == "tool":
            return Response("answer: 9", "stop")
        return Response(said, "stop")

    nodes = {"a": {"agent": "question -> answer: int", "tools": ["python:mytools.add"], "native": True}}
    outcome, lm, _ = run(nodes, {"question": "4 + 5?"}, folder, say)
    assert outcome.prediction == {"answer": 9}
    assert "give it in this form:\nanswer: ..." in lm.requests[0].messages[0]["content"]
    call, result = lm.requests[1].messages[-2:]
    assert call["content"] == ("" if said.startswith("answer") else "I add them.")
    assert re.fullmatch(r"[a-z0-9]{9}", call["tool_calls"][0]["id"])
    function = call["tool_calls"][0]["function"]
    assert function["name"] == "add" and json.loads(function["arguments"]) == {"a": 4, "b": 5}
    assert result == {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "result: 9"}


@pytest.mark.parametrize(("kind", "answer"), [("int", 9), ("Literal['8', '9']", "9"), ("str", {"tool": "add"})])
def test_a_call_behind_the_label_of_an_answer_that_holds_no_object_is_a_call(
    kind: str, answer: object, folder: Path
) -> None:
    """As a model of 0.5B writes it. A text may be a call that somebody else is to make."""

    def say(request: Request) -> Response:
        last = request.messages[-1]["content"]
        text = 'answer: {"tool": "add", "arguments": {"a": 4, "b": 5}}'
        return Response("answer: 9" if last == "result: 9" else text, "stop")

    nodes = {"a": {"agent": f"question -> answer: {kind}", "tools": ["python:mytools.add"]}}
    outcome, lm, _ = run(nodes, {"question": "4 + 5?"}, folder, say)
    found = outcome.prediction["answer"]
    assert found == answer or (kind == "str" and json.loads(found)["tool"] == "add" and len(lm.requests) == 1)


def test_agent_uses_native_tool_calls(folder: Path) -> None:
    def say(request: Request) -> Response:
        if request.messages[-1]["role"] == "tool":
            return Response("answer: 9", "stop")
        return Response("", "tool_calls", tool_calls=({"id": "c1", "name": "add", "arguments": '{"a": 4, "b": 5}'},))

    nodes = {"a": {"agent": "question -> answer: int", "tools": ["python:mytools.add"], "native": True}}
    outcome, lm, _ = run(nodes, {"question": "4 + 5?"}, folder, say)
    assert outcome.prediction == {"answer": 9}
    assert lm.requests[0].tools[0]["function"]["name"] == "add"

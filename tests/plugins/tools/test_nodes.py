"""The nodes tool, agent, ensemble, branch and workflow, run by the real runtime with a scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.ledger import Ledger
from workbench.lm import LMPool, Request, Response
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import Workflow, learnable_addresses, node_tree


class ScriptedLM:
    """No model: says what a function of the request returns, and keeps the requests."""

    identity, concurrency = "scripted", 8

    def __init__(self, say: Callable[[Request], str | Response]):
        self.say, self.requests = say, list[Request]()

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        said = self.say(request)
        return said if isinstance(said, Response) else Response(said, "stop", 5, 1, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass


class ScriptedPool(LMPool):
    def __init__(self, lm: ScriptedLM):
        super().__init__()
        self.lm = lm

    def get(self, spec: Any) -> Any:
        return self.lm


def run(
    nodes: dict[str, Any],
    row: dict[str, Any],
    folder: Path,
    say: Callable[[Request], Any] = lambda r: "yes",
    times: int = 1,
):
    """(outcome, scripted model) of the last of `times` runs, all under one journal."""
    workflow = Workflow({"nodes": {name: node_tree(raw) for name, raw in nodes.items()}}, folder)
    workflow.check()
    lm = ScriptedLM(say)

    async def course():
        store = Store(folder / "run.db")
        store.execute(
            "insert or ignore into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')"
        )
        outcome = None
        for _ in range(times):
            ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
            outcome = await Program(workflow, Runtime(ledger, lm_spec("openai/x"), {}, ScriptedPool(lm))).run(
                Example("1", row)
            )
            ledger.close()
        store.close()
        return outcome

    return asyncio.run(course()), lm, workflow


TOOLS = """
count = 0

def add(a: int, b: int = 1) -> int:
    "Adds two numbers."
    global count
    count += 1
    with open("calls.txt", "a") as file:
        file.write("x")
    return a + b

async def slow(text: str) -> dict:
    return {"said": text.upper()}

def broken(text: str):
    raise ZeroDivisionError("no")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mytools.py").write_text(TOOLS)
    return tmp_path


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


def test_agent_uses_native_tool_calls(folder: Path) -> None:
    def say(request: Request) -> Response:
        if request.messages[-1]["role"] == "tool":
            return Response("answer: 9", "stop")
        return Response("", "tool_calls", tool_calls=({"id": "c1", "name": "add", "arguments": '{"a": 4, "b": 5}'},))

    nodes = {"a": {"agent": "question -> answer: int", "tools": ["python:mytools.add"], "native": True}}
    outcome, lm, _ = run(nodes, {"question": "4 + 5?"}, folder, say)
    assert outcome.prediction == {"answer": 9}
    assert lm.requests[0].tools[0]["function"]["name"] == "add"


YESNO = {"predict": "text -> label: Literal['yes', 'no']", "decoding": {"temperature": 1.0}}


def test_ensemble_takes_the_majority_of_fresh_samples(folder: Path) -> None:
    def say(request: Request) -> str:
        return "no" if request.replica % 1000 == 1 else "yes"

    outcome, lm, workflow = run({"e": {"ensemble": YESNO, "samples": 3}}, {"text": "x"}, folder, say)
    assert outcome.prediction == {"label": "yes"} and len(lm.requests) == 3
    assert "nodes.e.of.instructions" in learnable_addresses(workflow)
    assert workflow.patched({"nodes.e.of.instructions": "Say no."}).get("nodes.e.of.instructions") == "Say no."


def test_ensemble_may_ask_a_judge_and_survives_failing_members(folder: Path) -> None:
    def say(request: Request) -> Any:
        if "number of the best answer" in request.messages[0]["content"]:
            return "2"
        if request.messages[0]["content"].startswith("Refuse"):
            return Response("", "refusal")
        return "no" if "Doubt" in request.messages[0]["content"] else "yes"

    members = [{**YESNO, "instructions": words} for words in ("Trust.", "Doubt.", "Refuse.")]
    outcome, _, _ = run({"e": {"ensemble": members, "samples": 1, "decide": "judge"}}, {"text": "x"}, folder, say)
    assert outcome.prediction == {"label": "no"}


def test_branch_runs_the_case_of_the_value(folder: Path) -> None:
    nodes = {
        "b": {
            "branch": "kind",
            "cases": {"sum": {"tool": "python:mytools.add", "arguments": {"a": "a"}}},
            "default": {"tool": "python:mytools.slow", "arguments": {"text": "kind"}},
        }
    }
    assert run(nodes, {"kind": "sum", "a": 1}, folder)[0].prediction == {"result": 2}
    assert run(nodes, {"kind": "other", "a": 1}, folder)[0].prediction == {"result": {"said": "OTHER"}}
    del nodes["b"]["default"]
    assert run(nodes, {"kind": "other", "a": 1}, folder)[0].failure == "branch"


def test_a_workflow_is_a_node_in_another_one(folder: Path) -> None:
    inner = {"second": {"predict": "hint -> label: Literal['yes', 'no']"}, "first": {"predict": "text -> hint"}}
    (folder / "inner.yaml").write_text(json.dumps({"data": {"file": "x.jsonl"}, "metric": "f1(label)", "nodes": inner}))
    for raw in ({"workflow": "inner.yaml"}, {"workflow": None, "nodes": inner}):
        outcome, lm, _ = run({"w": raw}, {"text": "x"}, folder)
        (folder / "run.db").unlink()  # else the second one is answered from the first one's journal
        assert outcome.prediction == {"hint": "yes", "label": "yes"}
        assert [r.messages[-1]["content"].split(":")[0] for r in lm.requests] == ["text", "hint"]


def test_independent_nodes_run_at_the_same_time_and_optional_ones_may_fail(folder: Path) -> None:
    nodes = {
        "a": {"predict": "text -> one"},
        "b": {"predict": "text -> two"},
        "c": {"tool": "python:mytools.broken", "optional": True, "output": "three"},
        "d": {"predict": "one, two -> label: Literal['yes', 'no']"},
    }
    outcome, _, _ = run(nodes, {"text": "x"}, folder)
    assert outcome.failure is None and outcome.prediction["label"] == "yes" and "three" not in outcome.prediction


def test_votes_drop_refusals_and_all_refused_is_a_typed_failure(folder: Path) -> None:
    def say(request: Request) -> Any:
        return Response("", "refusal") if request.replica < 2 else "no"

    node = {"p": {**YESNO, "samples": 3}}
    assert run(node, {"text": "x"}, folder, say)[0].prediction == {"label": "no"}
    refused, _, _ = run(node, {"text": "y"}, folder, lambda r: Response("", "refusal"))
    assert refused.failure == "refused"


@pytest.mark.parametrize(
    ("answer", "finish", "wanted"),
    [
        ("Yes.", "stop", ("yes", {})),
        ("I would say no, really", "stop", ("no", {"fallback": 1})),
        ("maybe", "stop", "unparsed"),
        ("", "empty", "empty"),
        ("label: no", "length", ("no", {"cut": 1})),
    ],
)
def test_answers_are_read_or_fail_by_kind(answer: str, finish: str, wanted: Any, folder: Path) -> None:
    outcome, _, _ = run(
        {"p": {"predict": "text -> label: Literal['yes', 'no']"}},
        {"text": "x"},
        folder,
        lambda r: Response(answer, finish),
    )
    if isinstance(wanted, str):
        assert outcome.failure == wanted
    else:
        assert (outcome.prediction["label"], outcome.trace.spans[0].notes) == wanted


def test_retrieve_shows_the_nearest_demos_and_never_the_input_itself(folder: Path) -> None:
    demos = [
        {"text": "red apple pie", "label": "yes"},
        {"text": "blue car", "label": "no"},
        {"text": "red apple", "label": "yes"},
    ]
    nodes = {"p": {"predict": "text -> label: Literal['yes', 'no']", "demos": demos, "retrieve": 1}}
    _, lm, _ = run(nodes, {"text": "red apple"}, folder)
    shown = [m["content"] for m in lm.requests[0].messages if m["role"] == "user"]
    assert shown == ["text: red apple pie\nlabel:", "text: red apple\nlabel:"]


@pytest.mark.parametrize("adapter", ["chat", "json", "xml"])
def test_adapters_of_dspy_round_trip(adapter: str, folder: Path) -> None:
    said = {
        "chat": "[[ ## label ## ]]\nno\n\n[[ ## completed ## ]]",
        "json": '{"label": "no"}',
        "xml": "<label>no</label>",
    }
    nodes = {"p": {"predict": "text -> label: Literal['yes', 'no']", "adapter": adapter}}
    outcome, _, _ = run(nodes, {"text": "x"}, folder, lambda r: said[adapter])
    assert outcome.prediction == {"label": "no"} and not outcome.trace.spans[0].notes

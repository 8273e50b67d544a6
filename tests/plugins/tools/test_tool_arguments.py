"""What a model's calls become: arguments of Python tools, ids of native calls, and nodes that are tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.node_runs import run

from workbench.errors import SpecError
from workbench.lm import Request, Response

TOOLS = """
from pydantic import BaseModel

class Item(BaseModel):
    name: str
    qty: int

def plus(a: int, b: int) -> int:
    "Adds."
    return a + b

def order(items: list[Item]) -> str:
    "Orders."
    return ", ".join(f"{i.qty} {i.name}" for i in items)

def free(**kwargs) -> dict:
    "Takes all."
    return kwargs

def twice(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

@twice
async def later(a: int) -> int:
    return a + 1

def pay(amount: int, to: str = "ann") -> str:
    "Pays."
    return f"{amount} to {to}"
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with tools in `shop.py`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(TOOLS)
    return tmp_path


def call(name: str, arguments: Any) -> str:
    return "call: " + json.dumps({"tool": name, "arguments": arguments})


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        pytest.param("plus", {"a": "2", "b": "3"}, "result: 5", id="T2"),
        pytest.param("plus", {"a": "two", "b": 3}, "error: plus: the argument 'a' is 'two'. Input", id="T2-error"),
        pytest.param("order", {"items": [{"name": "x", "qty": 2}]}, "result: 2 x", id="T3"),
        pytest.param("free", {"x": 1}, 'result: {"x": 1}', id="T5"),
        pytest.param("later", {"a": 1}, "result: 2", id="T5-coroutine"),
    ],
)  # fmt: skip
def test_an_agent_calls_a_tool_with_what_it_takes(name: str, arguments: Any, told: str, shop: Path) -> None:
    def say(request: Request) -> str:
        return "done: it" if len(request.messages) > 2 else call(name, arguments)

    nodes = {"a": {"agent": "task -> done", "tools": [f"python:shop.py:{name}"]}}
    outcome, lm, _ = run(nodes, {"task": "?"}, shop, say)
    assert outcome.failure is None and lm.requests[-1].messages[-1]["content"].startswith(told)


def test_t4_native_definitions_have_their_references_at_the_root(shop: Path) -> None:
    nodes = {"a": {"agent": "task -> done", "tools": ["python:shop.py:order"], "native": True}}
    _, lm, _ = run(nodes, {"task": "?"}, shop, lambda r: "done: it")
    parameters = lm.requests[0].tools[0]["function"]["parameters"]
    assert parameters["properties"]["items"] == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    assert "qty" in parameters["$defs"]["Item"]["properties"]


@pytest.mark.parametrize("amount", [500, "500", 500.0])
def test_rules_are_about_the_arguments_that_a_tool_is_called_with(amount: Any, shop: Path) -> None:
    policy = {"rules": [{"deny": "pay", "when": {"amount": {"min": 500}}}, {"deny": "pay", "when": {"to": "bob"}}]}
    node = {"t": {"tool": "python:shop.py:pay", "arguments": {"amount": "amount"}}}
    refused, _, _ = run(node, {"amount": amount}, shop, policy=policy)
    assert refused.failure == "policy"
    allowed, _, _ = run(node, {"amount": "499"}, shop, policy=policy)
    assert allowed.prediction == {"result": "499 to ann"}


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param((None, None), id="T6"),
        pytest.param(("", ""), id="T6-empty"),
        pytest.param(("c", "c"), id="T6-same"),
        pytest.param((0, 1), id="T6-numbers"),
        pytest.param(("c", None), id="T6-one"),
    ],
)
def test_calls_have_ids_by_which_their_results_are_told(ids: tuple[Any, Any], shop: Path) -> None:
    def say(request: Request) -> Response:
        if len(request.messages) >= 8:
            return Response("done: it", "stop")
        calls = tuple({"id": i, "name": "plus", "arguments": f'{{"a": {n}, "b": 1}}'} for n, i in enumerate(ids))
        return Response("", "tool_calls", tool_calls=calls)

    nodes = {"a": {"agent": "task -> done", "tools": ["python:shop.py:plus"], "native": True}}
    outcome, lm, _ = run(nodes, {"task": "?"}, shop, say)
    said = lm.requests[-1].messages[2:]
    asked = [c["id"] for m in said for c in m.get("tool_calls", ())]
    assert outcome.failure is None and [m["tool_call_id"] for m in said if m["role"] == "tool"] == asked
    assert len({*asked}) == 4 and all(isinstance(one, str) and one for one in asked)


def node_tool(**settings: Any) -> dict[str, Any]:
    inner = {"predict": "to: list[str], count: int -> sent", "instructions": "SECRET: fail for bob.", **settings}
    return {"a": {"agent": "task -> done", "nodes": {"send": inner}}}


@pytest.mark.parametrize("native", [False, True])
def test_a_node_that_is_a_tool_is_described_and_never_shows_its_instructions(native: bool, shop: Path) -> None:
    nodes = node_tool(describe="Sends mail.")
    nodes["a"]["native"] = native
    _, lm, _ = run(nodes, {"task": "?"}, shop, lambda r: "done: it")
    told = json.dumps([lm.requests[0].messages, lm.requests[0].tools])
    assert "Sends mail." in told and "SECRET" not in told
    if native:
        parameters = lm.requests[0].tools[0]["function"]["parameters"]
        assert parameters["properties"] == {
            "to": {"type": "array", "items": {"type": "string"}},
            "count": {"type": "integer"},
        }
    else:
        assert '- send({"to": ["string"], "count": "integer"}): Sends mail.' in lm.requests[0].messages[0]["content"]


def test_a_node_that_is_not_described_says_what_it_gives(shop: Path) -> None:
    _, lm, _ = run(node_tool(), {"task": "?"}, shop, lambda r: "done: it")
    assert '"count": "integer"}): Gives sent.' in lm.requests[0].messages[0]["content"]


def test_a_node_that_is_a_tool_gets_arguments_of_its_types(shop: Path) -> None:
    def say(request: Request) -> str:
        if "SECRET" in request.messages[0]["content"]:
            return "sent: it"
        answers = [
            call("send", {"to": "[]", "count": "many"}),
            call("send", {"to": '["ann"]', "count": "2"}),
            "done: it",
        ]
        return answers[len(request.messages) // 2 - 1]

    outcome, lm, _ = run(node_tool(), {"task": "?"}, shop, say)
    assert outcome.failure is None
    told = [m["content"] for m in lm.requests[-1].messages[3::2]]
    assert told[0].startswith("error: send: the argument 'count' is 'many'. Input should") and told[1] == "result: it"
    asked = next(r for r in lm.requests if "SECRET" in r.messages[0]["content"])
    assert asked.messages[-1]["content"].startswith('to: ["ann"]\ncount: 2')


def test_a_description_that_is_no_text_is_refused(shop: Path) -> None:
    with pytest.raises(SpecError, match="describe is a text"):
        run(node_tool(describe=["Sends."]), {"task": "?"}, shop)

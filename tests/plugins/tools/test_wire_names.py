"""Names of tools on their way to a server and back, and the one bound on results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.mcp_server import SERVER
from tests.helpers.node_runs import run

from workbench.lm import Request, Response
from workbench_kit.acting import LONGEST_RESULT, cut_result
from workbench_kit.answers import known_name, wire_names

NODE = {"agent": "question -> answer", "tools": ["mcp:python server.py"], "native": True}
VALID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def strict(*calls: tuple[str, Any], own: bool = True) -> Any:
    """A server that takes names of one form alone, and makes these calls."""

    def say(request: Request) -> Response:
        offered = [tool["function"]["name"] for tool in request.tools]
        sent = [call for message in request.messages for call in message.get("tool_calls") or ()]
        assert all(VALID.fullmatch(name) for name in (*offered, *(call["function"]["name"] for call in sent)))
        assert len({*offered}) == len(offered) and len({call["id"] for call in sent}) == len(sent)
        assert not own or all(call["function"]["name"] in offered for call in sent)
        if any(message["role"] == "tool" for message in request.messages):
            return Response("answer: told", "stop")
        made = tuple({"id": f"c{n}", "name": name, "arguments": given} for n, (name, given) in enumerate(calls))
        return Response("", "tool_calls", tool_calls=made)

    return say


def server(folder: Path, name: str) -> None:
    (folder / "server.py").write_text(
        SERVER.replace('"name": "key"', f'"name": "{name}"').replace('== "key"', f'== "{name}"')
    )


@pytest.mark.parametrize("name", ["db.query", "db/query", "a" * 100, "天气"])
@pytest.mark.parametrize("prefix", ["", "functions.", "default_api."])
def test_a_tool_of_any_name_is_offered_called_and_told_under_a_name_for_servers(
    name: str, prefix: str, tmp_path: Path
) -> None:
    pytest.importorskip("mcp")
    server(tmp_path, name)
    (wire,) = wire_names([name]).values()
    outcome, lm, _ = run({"n": NODE}, {"question": "?"}, tmp_path, strict((prefix + wire, {})))
    assert outcome.prediction == {"answer": "told"} and "result: None" in str(lm.requests[1].messages[-1])
    (note,) = outcome.trace.spans[0].notes["tools"]
    assert note["name"] == name


def test_the_policy_sees_the_tool_s_own_name(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    server(tmp_path, "db.query")
    rules = {"rules": [{"deny": "db.query"}]}
    _, lm, _ = run({"n": NODE}, {"question": "?"}, tmp_path, strict(("db_query", {})), policy=rules)
    assert "error" in str(lm.requests[1].messages[-1]["content"]) and "db.query" in str(lm.requests[1].messages[-1])


def test_parallel_calls_in_one_are_made_each_by_itself(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def weather(city: str) -> str:\n    return 'rain in ' + city\n")
    uses = [{"recipient_name": "functions.weather", "parameters": {"city": city}} for city in ("Bern", "Rome")]
    node = {**NODE, "tools": ["python:tools.py:weather"]}
    say = strict(("multi_tool_use.parallel", {"tool_uses": uses}))
    outcome, lm, _ = run({"n": node}, {"question": "?"}, tmp_path, say)
    told = [message["content"] for message in lm.requests[1].messages if message["role"] == "tool"]
    assert outcome.prediction == {"answer": "told"} and told == ["result: rain in Bern", "result: rain in Rome"]


def test_a_call_of_no_tool_goes_back_in_a_form_that_servers_take(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def weather(city: str) -> str:\n    return 'rain in ' + city\n")
    node = {**NODE, "tools": ["python:tools.py:weather"]}
    for name in ("web.search the net!", "", "x" * 200):
        outcome, lm, _ = run({"n": node}, {"question": name}, tmp_path, strict((name, {}), own=False))
        assert outcome.prediction == {"answer": "told"}
        assert "there is no tool" in str(lm.requests[-1].messages[-1]["content"])


def test_names_for_servers_are_unique_and_kept_where_they_fit(subtests: pytest.Subtests) -> None:
    same = wire_names(["a.b", "a/b", "a_b", "look-up_2"])
    assert same["a_b"] == "a_b" and same["look-up_2"] == "look-up_2" and len({*same.values()}) == 4
    assert wire_names(["a.b"]) == {"a.b": "a_b"}
    tools = {"db.query": [], "weather": [], "list__all": []}
    table = {
        "functions.db.query": "db.query",
        "functions.db_query": "db.query",
        "functions.weather:0": "weather",
        "mcp__server__weather": "weather",
        "list__all": "list__all",
        "weather<|channel|>commentary": "weather",
        " weather ": "weather",
        "query": None,
        "Weather": None,
        "weather2": None,
    }
    for said, own in table.items():
        with subtests.test(said):
            assert known_name(said, tools) == own


@pytest.mark.parametrize("made", ["'<' + 'x' * 3_000_000 + '>'", "{'a': '<' + 'x' * 3_000_000 + '>'}"])
def test_a_long_result_is_cut_in_the_middle_and_says_so(made: str, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(f"def big() -> object:\n    return {made}\n")
    node = {**NODE, "tools": ["python:tools.py:big"]}
    _, lm, _ = run({"n": node}, {"question": "?"}, tmp_path, strict(("big", {})))
    told = lm.requests[1].messages[-1]["content"]
    assert len(told) < LONGEST_RESULT + 20 and "<x" in told[:30] and "x>" in told[-5:] and "left out here" in told
    assert cut_result("x" * LONGEST_RESULT) == "x" * LONGEST_RESULT

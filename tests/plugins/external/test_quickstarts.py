"""Issue 34, point 9: the quickstarts of contrib/agents, the server behind them, and the table of what came of each.
contrib/agents/quickstarts/run.py runs them."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from docs.writers.agents import agents, counted

from workbench.lm import Native
from workbench_external.gateway import Ask, Gateway, Refused

AGENTS = Path(__file__).parents[3] / "contrib/agents"
QUICKSTARTS = sorted(path for path in (AGENTS / "quickstarts").glob("*/agent.*"))
COMMAND_LINES = ("claude_code", "codex", "gemini_cli", "aider", "llm_cli", "litellm_proxy")


def load(name: str, folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


planted, install = load("planted", AGENTS / "quickstarts"), load("install", AGENTS)


def test_9_a_quickstart_knows_nothing_of_us_and_names_its_packages_and_its_page() -> None:
    assert {path.parent.name for path in QUICKSTARTS} >= {*COMMAND_LINES}
    for path in QUICKSTARTS:
        packages, page, *program = path.read_text(encoding="utf-8").splitlines()
        assert re.fullmatch(r"(#|//) (@?[\w./@[\]-]+, )*@?[\w./@[\]-]+", packages), path
        assert re.match(r"(#|//) https://\S+", page), path
        assert "workbench" not in "".join(program) and len(program) <= 45, path


def test_9_the_job_of_each_night_runs_every_agent() -> None:
    job = yaml.safe_load((AGENTS.parents[1] / ".github/workflows/quickstarts.yml").read_text(encoding="utf-8"))
    named = " ".join(job["jobs"]["quickstarts"]["strategy"]["matrix"]["agents"]).split()
    folders = {path.parent.name for place in (AGENTS, AGENTS / "quickstarts") for path in place.glob("*/agent.*")}
    assert sorted(named) == sorted(folders)


@pytest.mark.parametrize(
    ("package", "name"),
    [("@scope/one@6", "@scope/one"), ("ai@6.0.1", "ai"), ("@scope/one", "@scope/one"), ("zod", "zod")],
)
def test_9_a_package_of_npm_is_found_by_its_name(package: str, name: str) -> None:
    assert install._name_of(package) == name


def rows() -> list[list[str]]:
    """The cells of the table: agent, seen, slots, patched, gain, applied, served."""
    table = [line for line in agents().splitlines() if line.startswith("| [")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_9_the_table_has_every_agent_and_each_column_what_the_issue_asks_for() -> None:
    found = rows()
    folders = {path.parent.name for place in (AGENTS, AGENTS / "quickstarts") for path in place.glob("*/agent.*")}
    names = [re.match(r"\[(\w+)\]", row[0]) for row in found]
    assert {name[1] for name in names if name is not None} == folders
    columns = {
        "seen": [row[1] == "yes" for row in found],
        "slots": [bool(row[2]) for row in found],
        "patched": [row[3] == "yes" for row in found],
        "gain": [row[4].startswith("+1.00") for row in found],
        "applied": [re.match(r"([1-9]\d*) of \d+", row[5]) is not None for row in found],
        "served": [row[6].startswith("yes") for row in found],
    }
    share = {name: sum(holds) / len(holds) for name, holds in columns.items()}
    assert min(share.values()) >= 25 / 27, share
    javascript = [row for row in found if (folder_of(row) / "agent.mjs").exists()]
    assert len(javascript) >= 7 and all(len({*row[5].split(" of ")}) == 1 for row in javascript)
    assert all(row[6].startswith("yes") for row in found if folder_of(row).name in COMMAND_LINES)


def folder_of(row: list[str]) -> Path:
    found = re.search(r"\]\(\.\./\.\./contrib/agents/([\w/]+)\)", row[0])
    assert found is not None
    return AGENTS / found[1]


def test_9_the_page_counts_the_columns_and_links_each_agent_to_its_folder() -> None:
    assert all(folder_of(row).is_dir() for row in rows())
    cells = [
        ["one", "yes", "S", "yes", "+1.00, p = 0.03", "2 of 2", "yes"],
        ["two", "yes", "S", "NO", "NO", "1 of 12: system is too short.", "yes, but for its files"],
        ["three", "failed: it said 2 of 2", "", "", "", "", ""],
    ]
    assert counted(cells) == (
        "Of 3 agents 2 were seen, 1 patched, of 1 the gain was proved, of 1 all texts were applied, and 2 were served."
    )


# The server


def ask(api: str, body: Mapping[str, Any], **more: Any) -> Ask:
    messages = tuple(body.get("messages") or ({"role": "user", "content": str(body.get("input"))},))
    return Ask("m", messages, native=Native(api, body), **more)


def answer(asked: Ask) -> Any:
    return asyncio.run(planted.Planted().complete(asked))[0]


WRONG: dict[str, tuple[str, Mapping[str, Any]]] = {
    "a field that chat completions do not have": ("chat", {"messages": [], "frequency": 1}),
    "a field of the other API": ("responses", {"input": "x", "messages": []}),
    "a field that no Messages have": ("messages", {"messages": [], "max_tokens": 9, "stop": "x"}),
    "no number of tokens": ("messages", {"messages": [{"role": "user", "content": "x"}]}),
    "an empty block": (
        "messages",
        {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
    ),
    "a result of no call": ("responses", {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}),
    "a call without a result": (
        "responses",
        {"input": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}]},
    ),
    "a call of another kind without a result": (
        "responses",
        {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "x"}]},
    ),
    "a result of a tool that nobody called": (
        "chat",
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_9_the_server_refuses_what_a_vendors_server_refuses(name: str) -> None:
    api, body = WRONG[name]
    model = planted.Planted()
    with pytest.raises(Refused):
        asyncio.run(model.complete(ask(api, body)))
    assert len(model.refused) == 1 and not model.asked


def test_9_the_server_takes_results_of_calls_that_it_keeps() -> None:
    result = {"type": "function_call_output", "call_id": "c", "output": "x"}
    for kept in (
        {"input": [{"type": "item_reference", "id": "fc_1"}, result]},
        {"input": [result], "previous_response_id": "resp_1"},
        {"input": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}, result]},
    ):
        planted.check_request("responses", kept)


@pytest.mark.parametrize("place", ["system", "tool"])
def test_9_only_the_planted_sentence_makes_an_answer_right(place: str) -> None:
    def said(words: str) -> str:
        tools = [{"type": "function", "function": {"name": "end", "description": words if place == "tool" else ""}}]
        system = {"role": "system", "content": words if place == "system" else "Sort."}
        said = [system, {"role": "user", "content": "row 6: a c-thing"}]
        return answer(ask("chat", {"messages": said, "tools": tools}, tools=tuple(tools))).text

    assert (said("Read it."), said(planted.PLANTED)) == ("d", "c")


def test_9_the_server_answers_in_the_form_that_is_asked_for() -> None:
    schema = {"type": "object", "properties": {"label": {"enum": ["a", "b", "c", "d"]}, "n": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "Sorted", "schema": schema}}
    look = {"type": "function", "function": {"name": "lookUp", "parameters": {"properties": {"w": {"type": "string"}}}}}
    end = {"type": "function", "function": {"name": "Sorted", "parameters": schema}}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "row 6: a c-thing"}]}
    assert answer(ask("chat", body, settings={"response_format": form})).text == '{"label": "d", "n": 1}'
    first = answer(ask("chat", body, tools=(look, end))).tool_calls
    assert [call["name"] for call in first] == ["lookUp"], "what looks something up is called first"
    choice = {"extra": {"tool_choice": {"type": "function", "function": {"name": "Sorted"}}}}
    (call,) = answer(ask("chat", body, tools=(end,), settings=choice)).tool_calls
    assert (call["name"], call["arguments"]) == ("Sorted", '{"label": "d", "n": 1}')
    assert not answer(ask("chat", body, tools=(end,))).tool_calls, "nor is any other tool called"
    looked = {"messages": [*body["messages"], {"role": "assistant", "content": "Calling lookUp"}]}
    required = {"extra": {"tool_choice": "required"}}
    (call,) = answer(ask("chat", looked, tools=(look, end), settings=required)).tool_calls
    assert call["name"] == "Sorted", "as smolagents wants it"
    improved = answer(ask("chat", {"messages": [{"role": "user", "content": "Mend <prompt>\nSort.\n</prompt>"}]}))
    assert planted.PLANTED in improved.text


def test_9_a_client_that_wants_a_websocket_is_told_at_once_to_ask_by_http() -> None:
    wanted = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }

    async def status() -> int:
        gateway = await Gateway.open()
        try:
            base = gateway.environment(gateway.admit(planted.Planted()), {})["OPENAI_BASE_URL"]
            async with aiohttp.ClientSession() as client, client.get(f"{base}/responses", headers=wanted) as found:
                return found.status
        finally:
            await gateway.aclose()

    assert asyncio.run(status()) == 426

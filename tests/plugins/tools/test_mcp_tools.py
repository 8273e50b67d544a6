"""Tools of MCP servers as a model sees them, and the session that lives for a row."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.mcp_server import read_log, write_server
from tests.helpers.node_runs import ScriptedLM, ScriptedPool, run

from workbench.errors import NodeError, SpecError
from workbench.ledger import Ledger
from workbench.lm import Request, Response, count_images
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import Workflow, node_tree
from workbench_kit.acting import (
    LONGEST_RESULT,
    Server,
    Tool,
    argument_names,
    cut_result,
    describe_tool,
    load_tool,
    load_tools,
    mcp,
    read_arguments,
)
from workbench_kit.prompting import split_images

pytest.importorskip("mcp")

ADD = '- add({"item": "string, what to buy", "cups": "integer", "gift": "boolean"}): Put so many cups of an item into the cart.'  # noqa: E501


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server in the current folder."""
    monkeypatch.chdir(tmp_path)
    return write_server(tmp_path)


def call(name: str, **arguments: Any) -> str:
    return "call: " + json.dumps({"tool": name, "arguments": arguments})


def saying(*answers: str) -> Callable[[Request], str]:
    """A model that gives these answers in turn, by the number of messages."""
    return lambda request: answers[min(len(request.messages) // 2 - 1, len(answers) - 1)]


def agent(server: str, **settings: Any) -> dict[str, Any]:
    return {"a": {"agent": "task -> done", "tools": [server], **settings}}


def test_t1_a_model_is_shown_what_the_server_says_and_the_server_is_asked_once(server: str, tmp_path: Path) -> None:
    for task in ("?", "!"):
        _, lm, _ = run(agent(server), {"task": task}, tmp_path, saying("done: it"))
    told = lm.requests[0].messages[0]["content"]
    assert ADD in told and "- crash({}): " in told, "the second page of the list is missing"
    assert read_log(tmp_path) == ["start", "list", "list"], "asked once: a list of two pages"


def test_t1_native_definitions_are_objects_with_the_schema_of_the_server(server: str, tmp_path: Path) -> None:
    _, lm, _ = run(agent(server, native=True), {"task": "?"}, tmp_path, saying("done: it"))
    functions = {tool["function"]["name"]: tool["function"] for tool in lm.requests[0].tools}
    assert functions["add"]["description"] == "Put so many cups\nof an item into the cart."
    assert functions["add"]["parameters"]["properties"]["item"] == {"type": "string", "description": "what to buy"}
    assert functions["photo"]["parameters"] == {"type": "object", "properties": {}}


def test_one_tool_of_a_server_is_asked_for_only_when_a_model_is_shown_it(server: str, tmp_path: Path) -> None:
    tool = load_tool(f"{server}#add", tmp_path)
    assert not tool.is_known and read_log(tmp_path) == []
    described = tool.described("Buy.")
    assert described.description == "Buy." and read_log(tmp_path) == []
    assert described.schema["required"] == ["item", "cups"] and described.all_defaults == {"gift": False}
    assert tool.description.startswith("Put so many cups") and read_log(tmp_path) == ["start", "list", "list"]


@pytest.mark.parametrize("code", ["unread", "outlined"])
def test_nothing_is_started_where_code_is_not_run(server: str, tmp_path: Path, code: Any) -> None:
    assert load_tools([server], tmp_path, code=code) == {}
    assert load_tool(f"{server}#add", tmp_path, code=code).schema == {}
    tree = {"nodes": {"a": node_tree(agent(server, descriptions={"add": "Buy."})["a"])}}
    workflow = Workflow(tree, tmp_path, code=code)
    workflow.check()
    assert list(workflow.enabled_nodes["a"].tool_names()) == [server]
    assert read_log(tmp_path) == []


def test_a_session_lives_for_a_row(server: str, tmp_path: Path) -> None:
    say = saying(call("add", item="tea", cups="2"), call("add", item="milk", cups=1), "done: it")
    for row in ("one", "two"):
        _, lm, _ = run(agent(server), {"task": row}, tmp_path, say)
        assert [m["content"] for m in lm.requests[-1].messages[3::2]] == ["result: tea", "result: tea and milk"]
    log = (tmp_path / "log.txt").read_text().splitlines()
    assert len([line for line in log if line.startswith("start")]) == 2, (
        "one for the list, one for the row, and then replayed"
    )
    assert not any(is_running(int(line.split()[1])) for line in log if line.startswith("start"))


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def rows(
    folder: Path, nodes: dict[str, Any], say: Callable[[Request], Any], count: int, timeout: float = 300.0
) -> list[Any]:
    """The outcomes of rows that run at the same time, with a journal."""
    workflow = Workflow({"nodes": {name: node_tree(raw) for name, raw in nodes.items()}}, folder, code="loaded")
    store = Store(folder / "run.db")
    store.execute(
        "insert or ignore into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')"
    )

    async def main() -> list[Any]:
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
        runtime = Runtime(ledger, lm_spec("openai/x"), {}, ScriptedPool(ScriptedLM(say)), timeout=timeout)
        program = Program(workflow, runtime)
        try:
            return await asyncio.gather(*(program.run(Example(str(i), {"task": f"row {i}"})) for i in range(count)))
        finally:
            await runtime.aclose()

    try:
        return asyncio.run(main())
    finally:
        store.close()


def test_rows_do_not_share_a_session(server: str, tmp_path: Path) -> None:
    def say(request: Request) -> str:
        text = request.messages[1]["content"].removeprefix("task: ")
        if len(request.messages) < 6:
            return call("add", item=text, cups=1)
        return f"done: {request.messages[-1]['content']}"

    found = [outcome.prediction["done"] for outcome in rows(tmp_path, agent(server), say, 3)]
    assert found == [f"result: row {i} and row {i}" for i in range(3)]


def test_samples_of_a_node_have_sessions_of_their_own(server: str, tmp_path: Path) -> None:
    inner = {"agent": "task -> done", "tools": [server], "temperature": 1.0}
    say = lambda r: call("add", item="tea", cups=1) if len(r.messages) < 4 else f"done: {r.messages[-1]['content']}"  # noqa: E731
    _, lm, _ = run({"v": {"ensemble": inner, "samples": 2}}, {"task": "?"}, tmp_path, say)
    results = [r.messages[-1]["content"] for r in lm.requests if len(r.messages) == 4]
    assert results == ["result: tea", "result: tea"]


def test_a_resumed_row_makes_its_earlier_calls_again_in_a_new_session(server: str, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def stops(request: Request) -> str:
        if len(request.messages) >= 4:
            raise Killed
        return call("add", item="tea", cups="1")

    with pytest.raises(Killed):
        rows(tmp_path, agent(server), stops, 1)
    (tmp_path / "log.txt").unlink()
    say = saying(call("add", item="tea", cups="1"), call("add", item="milk", cups=1), "done: it")
    seen = list[Request]()
    rows(tmp_path, agent(server), lambda r: seen.append(r) or say(r), 1)
    assert [m["content"] for m in seen[-1].messages[3::2]] == ["result: tea", "result: tea and milk"]
    assert read_log(tmp_path) == ["start", "call add tea", "call add milk"]


def test_a_resumed_row_does_not_make_a_call_again_that_failed(server: str, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    answers = (call("add", item="tea", cups=1), call("crash"), call("add", item="milk", cups=1), "done: it")

    def stops(request: Request) -> str:
        if len(request.messages) >= 6:
            raise Killed
        return saying(*answers)(request)

    with pytest.raises(Killed):
        rows(tmp_path, agent(server), stops, 1)
    (tmp_path / "log.txt").unlink()
    seen = list[Request]()
    rows(tmp_path, agent(server), lambda r: seen.append(r) or saying(*answers)(r), 1)
    assert seen[-1].messages[-1]["content"] == "result: tea and milk", "as in a row that nobody interrupts"
    assert read_log(tmp_path) == ["start", "call add tea", "call add milk"]


def test_a_replayed_row_starts_no_server(server: str, tmp_path: Path) -> None:
    node = {"t": {"tool": f"{server}#add", "arguments": {"item": "task"}, "constants": {"cups": 1}}}
    outcome, _, _ = run(node, {"task": "tea"}, tmp_path, times=3)
    assert outcome.prediction == {"result": "tea"} and read_log(tmp_path) == ["start", "call add tea"]


def test_a_tool_node_takes_the_arguments_that_its_server_requires(server: str, tmp_path: Path) -> None:
    outcome, _, workflow = run({"t": {"tool": f"{server}#add"}}, {"item": "tea", "cups": 1}, tmp_path)
    assert outcome.prediction == {"result": "tea"} and workflow.enabled_nodes["t"].inputs == ("item", "cups")


@pytest.mark.parametrize("wrong", [pytest.param("hang", marks=pytest.mark.slow), "crash"])
def test_a_server_that_breaks_is_one_failed_call_and_the_row_goes_on(wrong: str, server: str, tmp_path: Path) -> None:
    say = saying(call("add", item="tea", cups=1), call(wrong), call("add", item="milk", cups=1), "done: it")
    seen = list[Request]()
    (outcome,) = rows(tmp_path, agent(server), lambda r: seen.append(r) or say(r), 1, timeout=3.5)
    told = [m["content"] for m in seen[-1].messages[3::2]]
    assert outcome.failure is None and told[0] == "result: tea" and told[2] == "result: tea and milk"
    assert told[1].startswith(f"error: {wrong}: ")
    assert read_log(tmp_path).count("start") == 3, "for the list, before and after the break"


def test_servers_end_with_a_row_that_fails(server: str, tmp_path: Path) -> None:
    outcome, _, _ = run(agent(server, max_steps=1), {"task": "?"}, tmp_path, saying(call("add", item="tea", cups=1)))
    assert outcome.failure == "steps"
    processes = [int(line.split()[1]) for line in (tmp_path / "log.txt").read_text().splitlines() if "start" in line]
    assert len(processes) == 2 and not any(map(is_running, processes))


@pytest.mark.slow
def test_servers_end_with_a_process_that_is_killed(server: str, tmp_path: Path) -> None:
    code = (
        "import asyncio, pathlib\nfrom workbench_kit.acting import load_tool\n"
        f"asyncio.run(load_tool({server + '#hang'!r}, pathlib.Path())({{}}, 60.0))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) as process:
        while "call hang" not in read_log(tmp_path):
            time.sleep(0.05)
        process.kill()
    started = int((tmp_path / "log.txt").read_text().split()[1])
    until = time.monotonic() + 10
    while is_running(started) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(started)


def test_t1_env_names_variables_whose_values_the_file_does_not_hold(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", "secret")
    node = {"t": {"tool": f"{server}#key", "constants": {}, "env": {"MY_KEY": "<$OUR_KEY>"}}}
    assert run(node, {}, tmp_path)[0].prediction == {"result": "<secret>"}
    assert run({"t": {"tool": f"{server}#key"}}, {}, tmp_path)[0].prediction == {"result": "None"}
    assert b"secret" not in (tmp_path / "run.db").read_bytes().replace(b"<secret>", b"")
    monkeypatch.delenv("OUR_KEY")
    with pytest.raises(SpecError, match="the environment has no variable OUR_KEY") as caught:
        load_tool(f"{server}#key", tmp_path, {"MY_KEY": "$OUR_KEY"})
    assert caught.value.path == ("env",)


def test_t1_an_image_in_a_result_is_shown(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedLM, "reads_images", True, raising=False)
    _, lm, _ = run(agent(server), {"task": "?"}, tmp_path, saying(call("photo"), "done: it"))
    text, image = lm.requests[-1].messages[-1]["content"]
    assert text == {"type": "text", "text": "result: the cart\n(image 1)"}
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


@pytest.mark.parametrize(("gives", "images"), [("'two cups'", 0), ("['two cups', result[1]]", 1)])
def test_a_wrapper_decides_on_the_images_of_a_result(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gives: str, images: int
) -> None:
    monkeypatch.setattr(ScriptedLM, "reads_images", True, raising=False)
    wrapped = agent(server, wrappers={"photo": f"def wrap(result, arguments): return {gives}"})
    _, lm, _ = run(wrapped, {"task": "?"}, tmp_path, saying(call("photo"), "done: it"))
    last = lm.requests[-1].messages[-1]
    assert "two cups" in str(last["content"]) and "the cart" not in str(last["content"])
    assert count_images(last) == images


def test_t1_images_of_native_calls_stand_behind_the_results(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedLM, "reads_images", True, raising=False)
    calls = tuple({"id": f"c{n}", "name": name, "arguments": "{}"} for n, name in enumerate(("photo", "key")))

    def say(request: Request) -> Response:
        return (
            Response("done: it", "stop") if len(request.messages) > 2 else Response("", "tool_calls", tool_calls=calls)
        )

    _, lm, _ = run(agent(server, native=True), {"task": "?"}, tmp_path, say)
    *_, photo, key, images = lm.requests[-1].messages
    assert (photo["role"], photo["tool_call_id"], photo["content"]) == ("tool", "c0", "result: the cart\n(image 1)")
    assert key["role"] == "tool" and images["role"] == "user" and len(images["content"]) == 2


def test_t1_a_model_without_eyes_is_told_that_there_is_an_image(server: str, tmp_path: Path) -> None:
    outcome, lm, _ = run(agent(server), {"task": "?"}, tmp_path, saying(call("photo"), "done: it"))
    assert outcome.failure is None
    assert lm.requests[-1].messages[-1]["content"] == "result: the cart\n(image 1)\nYou cannot see images."


def test_a_failure_that_the_server_tells_is_told_to_the_model(server: str, tmp_path: Path) -> None:
    _, lm, _ = run(agent(server), {"task": "?"}, tmp_path, saying(call("fail"), call("add"), "done: it"))
    told = [m["content"] for m in lm.requests[-1].messages[3::2]]
    assert told == ["error: fail: ValueError: no fail", "error: add needs the argument 'cups'"]


def test_a_list_that_cannot_be_had_is_told_with_the_command_and_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import sys\nsys.exit('no \\x1b]52 key')\n")
    with pytest.raises(SpecError) as caught:
        load_tools(["mcp:python broken.py"], tmp_path)
    told = str(caught.value)
    assert "`python broken.py` gave no list of its tools" in told and "it said: no \\x1b]52 key" in told
    assert str(tmp_path) in caught.value.hint and caught.value.path == ("tools", 0)
    with pytest.raises(SpecError, match="there is no program 'nobody_has_this'"):
        load_tools(["mcp:nobody_has_this --at all"], tmp_path)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("mcp:", "names no command"),
        ("mcp:#add", "names no command"),
        ("mcp:python server.py#", "names no tool after #"),
        ("mcp:python 'server.py#add", "cannot be read: No closing quotation"),
        ("mcp:python server.py", "names all tools"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused(address: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=told):
        load_tool(address, tmp_path)


def test_a_tool_that_the_server_does_not_have_is_told_with_those_that_it_has(server: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="has no tool 'ad'") as caught:
        _ = load_tool(f"{server}#ad", tmp_path).schema
    assert "add" in caught.value.hint


def test_two_servers_with_a_tool_of_one_name_are_refused(server: str, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text((tmp_path / "server.py").read_text())
    with pytest.raises(SpecError, match="two tools are named 'add'"):
        load_tools([server, "mcp:python other.py"], tmp_path)
    assert list(load_tools([f"{server}#add", "mcp:python other.py#key"], tmp_path)) == ["add", "key"]


def test_a_rule_is_about_the_default_that_the_server_fills_in(server: str, tmp_path: Path) -> None:
    node = {"t": {"tool": f"{server}#add", "arguments": {"item": "item", "cups": "cups"}}}
    policy = {"rules": [{"deny": "add", "when": {"gift": False}}]}
    outcome, _, _ = run(node, {"item": "tea", "cups": 1}, tmp_path, policy=policy)
    assert outcome.failure == "policy" and read_log(tmp_path) == ["start", "list", "list"]


def test_without_a_row_a_call_has_a_session_of_its_own(server: str, tmp_path: Path) -> None:
    add = load_tool(f"{server}#add", tmp_path)
    assert [asyncio.run(add({"item": "tea", "cups": 1}, 30.0)) for _ in range(2)] == ["tea", "tea"]
    with pytest.raises(NodeError, match="fail: ValueError"):
        asyncio.run(load_tool(f"{server}#fail", tmp_path)({}, 30.0))


def test_a_failure_does_not_tell_the_key_that_the_server_was_given(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "canary-0123456789")
    with pytest.raises(NodeError, match=r"no such key: \*\*\*"):
        asyncio.run(load_tool(f"{server}#leak", tmp_path, {"MY_KEY": "$OURS"})({}, 30.0))
    (tmp_path / "broken.py").write_text("import os, sys\nsys.exit('bad key ' + os.environ['MY_KEY'])\n")
    with pytest.raises(SpecError, match=r"it said: bad key \*\*\*"):
        load_tools(["mcp:python broken.py"], tmp_path, {"MY_KEY": "${OURS}"})


def result(structured: Any = None, *texts: str) -> Any:
    content = [SimpleNamespace(type="text", text=text) for text in texts]
    return SimpleNamespace(content=content, structuredContent=structured, isError=False)


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    "given",
    [
        result({"rows": "x" * LONGEST_RESULT}, "a few"),
        result(None, "data:image/png;base64," + "x" * LONGEST_RESULT),
    ],
    ids=["structured", "a text like an image"],
)
def test_a_result_that_would_flood_the_journal_is_cut(given: Any, tmp_path: Path) -> None:
    found = cut_result(mcp._value(given, "t", Server(("python",), tmp_path)))
    assert len(found) <= LONGEST_RESULT and "are left out here" in found


def test_a_result_that_is_nested_too_deeply_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="nested too deeply"):
        mcp._value(result(nested(100_000), ""), "t", Server(("python",), tmp_path))


TEXT, PAGE = "the whole page text", {"page": 1, "length": 19}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (result(PAGE, TEXT), f"{TEXT}\n{json.dumps(PAGE)}"),
        (result(PAGE, json.dumps(PAGE, indent=2)), PAGE),
        (result(PAGE), PAGE),
        (result(PAGE, " \n"), PAGE),
        (result(None, TEXT), TEXT),
        (result({"result": 19}, "19"), {"result": 19}),
        (result({"result": "a"}, "a"), {"result": "a"}),
        (result({"result": [1, {"a": 2}]}, "1", '{"a": 2}'), {"result": [1, {"a": 2}]}),
        (result([1, 2], "[1, 2]"), [1, 2]),
        (result({"result": 19}, "nineteen"), 'nineteen\n{"result": 19}'),
    ],
)
def test_a_text_that_is_not_the_structured_part_is_shown_too(given: Any, value: Any, tmp_path: Path) -> None:
    assert mcp._value(given, "t", Server(("python",), tmp_path)) == value


@pytest.mark.parametrize(
    "odd", [{"properties": None}, {"properties": ["a"], "required": "all"}, {"required": [1]}, None]
)
def test_a_schema_of_another_form_is_taken_as_far_as_it_goes(odd: Any) -> None:
    class Session:
        async def list_tools(self, params: Any) -> Any:
            schema = None if odd is None else {"type": "object", **odd}
            return SimpleNamespace(tools=[SimpleNamespace(name="t", description="", title="", inputSchema=schema)])

    (listed,) = asyncio.run(mcp._all_pages(Session()))
    tool = Tool(listed.name, listed.description, listed.schema, lambda given: given)
    assert tool.definition["function"]["parameters"] == {"type": "object", "properties": {}}
    assert describe_tool(tool) == "- t({}): " and argument_names([tool]) == {"t": []}
    assert read_arguments(tool, {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("text", ["data:image/png;base64,no image", "data:image/png;base64,PHN2Zy8+", "data:image/x"])
def test_a_text_like_an_image_is_a_text(text: str) -> None:
    assert split_images(text) == (text, [])
    assert split_images({"a": [text]}) == (json.dumps({"a": [text]}), [])

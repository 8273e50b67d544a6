"""`workbench agent functions`: the functions of a file are listed, tested and served."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.helpers.function_library import DOUBLE, PEEK, TOTAL, write, write_library
from tests.helpers.scripted import run_node
from tests.plugins.forge.test_forge import AGENT, CODE, GOOD, RIGHT, proposing, run
from tests.plugins.sandbox.test_sandbox import needs_kernel

from workbench.cli import cli
from workbench.errors import SpecError
from workbench_forge.serve import call_function, tool_names

pytestmark = needs_kernel


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_library(tmp_path)


def command(*words: Any) -> Result:
    return CliRunner().invoke(cli, ["agent", "functions", *map(str, words)], catch_exceptions=False)


# Kept with their tests


@pytest.mark.slow
def test_a_forged_function_is_exported_with_its_test_which_can_be_run(tmp_path: Path) -> None:
    report, _ = run(tmp_path, AGENT, proposing([GOOD]), {"forge": {"batch": 8}})
    assert report.winner.get("nodes.solve.functions.0.example") == {"arguments": {"text": "abe"}, "result": 2}
    out = tmp_path / "out.yaml"
    assert command("test", out).output.splitlines() == [
        "nodes.solve: vowels passed",
        "1 of 1 passed; 0 without a test.",
    ]
    out.write_text(out.read_text().replace("'aeiou'", "'aeo'").replace("text: abe", "text: iii"))
    broken = command("test", out)
    assert broken.exit_code == 1 and "vowels FAILED: returned 0, not 2" in broken.output


@pytest.mark.slow
def test_a_forged_program_gets_a_solved_training_row_as_its_test(tmp_path: Path) -> None:
    report, _ = run(tmp_path, CODE, lambda r: RIGHT, {"forge": {"samples": 1}})
    example = report.winner.get("nodes.count.example")
    train = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert {"text": example["arguments"]["text"], "answer": example["result"]} in train
    assert command("test", tmp_path / "out.yaml").exit_code == 0
    assert not any("copies text" in w for w in report.warnings)


# Tested and listed


@pytest.mark.slow
def test_each_functions_own_test_is_run_and_the_exit_code_tells(library: Path) -> None:
    found = command("test", library)
    assert found.exit_code == 0
    assert "nodes.solve: double passed" in found.output and "nodes.solve: shout has no test" in found.output
    assert "2 of 2 passed; 2 without a test." in found.output
    lies = [
        {**DOUBLE, "example": {"arguments": {"x": 2}, "result": 5}},
        {**PEEK, "example": {"arguments": {}, "result": ""}},
        {"name": "loop", "source": "def loop():\n    while True: pass", "example": {"arguments": {}, "result": 1}},
    ]
    bad = command(
        "test", write(library.parent, "bad.yaml", {"a": {"agent": "question -> answer", "functions": lies}}), "--json"
    )
    assert bad.exit_code == 1
    failures = [row["failure"] for row in json.loads(bad.output)]
    assert failures[0] == "returned 4, not 5" and failures[2].startswith("timeout")
    assert failures[1].startswith(("forbidden in line 2", "error in line 2"))


def test_the_list_says_what_each_takes(library: Path) -> None:
    lines = command("list", library).output.splitlines()
    assert lines[0] == "nodes.solve: double(x)  twice" and lines[3].startswith("nodes.add: total(numbers)")
    assert [f["name"] for f in json.loads(command("list", library, "--json").output)] == [
        "double",
        "shout",
        "peek",
        "total",
    ]


# Served


def workbench() -> str:
    return str(Path(sys.executable).with_name("workbench"))


@pytest.mark.slow
def test_our_own_client_calls_what_is_served(library: Path) -> None:
    pytest.importorskip("mcp.server.lowlevel")
    tool = f"mcp:{workbench()} agent functions serve library.yaml#"
    twice, _ = run_node({"tool": f"{tool}double", "arguments": {"x": "x"}}, {"x": 21}, library.parent)
    assert twice.prediction["result"] == {"result": 42}, twice
    peek, _ = run_node({"tool": f"{tool}peek", "arguments": {}}, {}, library.parent)
    assert peek.failure == "tool" and "root:" not in str(peek.message), "it runs in the sandbox"


@pytest.mark.slow
def test_the_server_lists_its_tools_and_bears_wrong_calls(library: Path) -> None:
    """One session: what is listed, then a call after each kind of wrong call."""
    mcp = pytest.importorskip("mcp")
    from mcp.client.stdio import stdio_client

    async def main() -> None:
        server = mcp.StdioServerParameters(command=workbench(), args=["agent", "functions", "serve", str(library)])
        async with stdio_client(server) as (read, write), mcp.ClientSession(read, write) as session:
            await session.initialize()
            tools = {t.name: t for t in (await session.list_tools()).tools}
            assert list(tools) == ["double", "shout", "peek", "total"]
            assert tools["double"].description == "twice" and tools["double"].input_schema == DOUBLE["parameters"]
            for name, arguments in (("nobody", {}), ("double", {"y": 1}), ("total", {"numbers": ["a"]}), ("peek", {})):
                wrong = await session.call_tool(name, arguments)
                assert wrong.is_error and wrong.content[0].text, name
            good = await session.call_tool("shout", {"text": "hey"})
            assert not good.is_error and good.structured_content == {"said": "HEY!"}

    asyncio.run(main())


def test_the_policies_of_a_file_and_of_its_library_hold_for_what_is_served(library: Path) -> None:
    """Deny, and ask where nobody can be asked, are refused with the reason; also under the name of the node."""
    from workbench.runtime import open_sandbox
    from workbench.task import read_library

    def ruled(file: Path, *rules: dict[str, Any]) -> None:
        file.write_text(json.dumps(json.loads(file.read_text()) | {"policy": {"rules": rules}}))

    ruled(library, {"deny": "double", "when": {"x": {"min": 100}}, "why": "small numbers only"})
    nodes = {
        "solve": {"agent": "question -> answer", "functions": ["library.yaml#nodes.solve"]},
        "other": {"agent": "question -> answer", "functions": [DOUBLE]},
    }
    served = write(library.parent, "served.yaml", nodes)
    ruled(served, {"ask": "shout"})

    async def main() -> list[tuple[str, Any, bool]]:
        sandbox, tools = await open_sandbox(), tool_names(read_library(served))
        calls = [("solve_double", {"x": 100}), ("shout", {"text": "hey"}), ("solve_double", {"x": 3})]
        try:
            return [await call_function(tools, sandbox, name, arguments) for name, arguments in calls]
        finally:
            await sandbox.aclose()

    denied, asked, allowed = asyncio.run(main())
    assert denied == ("double is not allowed here: small numbers only", None, True)
    assert asked == ("shout needs a person's consent, and nobody is here to ask", None, True)
    assert allowed == ("6", {"result": 6}, False)


def test_nothing_to_serve_is_refused(library: Path) -> None:
    file = write(library.parent, "empty.yaml", {"a": {"predict": "question -> answer"}})
    with pytest.raises(SpecError, match="no functions"):
        command("serve", file)


def test_two_functions_of_one_name_are_served_under_their_nodes_names(library: Path) -> None:
    from workbench.task import read_library

    nodes = {n: {"agent": "question -> answer", "functions": [DOUBLE]} for n in ("one", "two")} | {"add": TOTAL}
    assert list(tool_names(read_library(write(library.parent, "twice.yaml", nodes)))) == [
        "one_double",
        "two_double",
        "total",
    ]


@pytest.mark.slow
def test_a_new_program_does_not_inherit_the_old_ones_test(tmp_path: Path) -> None:
    stale = {"arguments": {"text": "zzz"}, "result": 0}
    nodes = {"count": {**CODE["count"], "example": stale}}
    report, _ = run(tmp_path, nodes, lambda r: RIGHT, {"forge": {"samples": 1}})
    assert report.winner.get("nodes.count.example") not in (None, stale)
    (tmp_path / "none").mkdir()
    unchanged, _ = run(tmp_path / "none", nodes, lambda r: "no", {"forge": {"samples": 1}}, ATTEMPTS=1)
    assert unchanged.winner.get("nodes.count.example") == stale

"""`workbench agent mcp`, asked by the client of the package mcp over stdio, as a real process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

pytest.importorskip("mcp.server.mcpserver")

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server.mcpserver.exceptions import ToolError
from tests.helpers.forking import start_module

from workbench.cli import cli
from workbench.store import Store
from workbench_mcp.server import Tools

ROOT = Path(__file__).parents[3]
TICKETS = ROOT / "workflows" / "data" / "tickets.jsonl"
FILE: dict[str, Any] = {
    "name": "tickets",
    "lm": "bundled/nano",
    "data": {"file": "tickets.jsonl", "split": {"train": 12, "val": 12, "test": 40}},
    "metric": "exact_match(label)",
    "nodes": {"sort": {"predict": "text -> label: Literal['billing', 'technical', 'shipping', 'returns', 'account']"}},
    "optimize": [{"random": {"trials": 2}}],
    "budget": {"calls": 300},
}


#: What is asked of a finished run: each starts a process of its own.
LOOKS = ("show", "runs", "diff", "export", "evaluate", "attribute")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tickets.jsonl").write_bytes(TICKETS.read_bytes())
    write(tmp_path)
    return tmp_path


def write(folder: Path, name: str = "tickets.yaml", **changed: Any) -> None:
    (folder / name).write_text(yaml.safe_dump({**FILE, **changed}))


@asynccontextmanager
async def session(folder: Path) -> AsyncIterator[ClientSession]:
    """A client of a server in a folder, where nothing is trusted."""
    here = os.environ.get("PYTHONPATH", "")  # the client hands on few variables
    environment = {"XDG_CONFIG_HOME": str(folder / "config"), "OMP_NUM_THREADS": "1", "PYTHONPATH": here}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "workbench", "agent", "mcp"], cwd=folder, env=environment
    )
    async with stdio_client(command) as (reads, writes), ClientSession(reads, writes) as client:
        await client.initialize()
        yield client


def ask(folder: Path, main: Callable[[ClientSession], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with session(folder) as client:
            return await main(client)

    return asyncio.run(run())


async def call(client: ClientSession, name: str, **arguments: Any) -> Any:
    """The result of a tool. Raises AssertionError with its text where it is an error."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content[0].text  # type: ignore[union-attr]
    return result.structured_content


async def refused(client: ClientSession, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert result.is_error, result.structured_content
    return result.content[0].text  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_tools_have_typed_inputs_and_say_which_of_them_pay(folder: Path) -> None:
    async def main(client: ClientSession) -> Any:
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in ask(folder, main)}
    assert {
        "validate",
        "estimate",
        "optimize",
        "resume",
        "evaluate",
        "runs",
        "show",
        "diff",
        "export",
        "attribute",
    } == set(tools)
    asked = tools["optimize"].input_schema["properties"]
    assert asked["file"]["type"] == "string" and "ctx" not in asked
    assert not {name for tool in tools.values() for name in tool.input_schema["properties"]} & {
        "set",
        "sets",
        "sandbox",
    }
    paying = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
    assert paying == {"optimize", "resume", "evaluate", "attribute"}


@pytest.mark.slow
def test_a_workflow_is_checked_estimated_optimized_and_looked_at(folder: Path) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, of: float | None, said: str | None) -> None:
        told.append((done, of, said))

    async def main(client: ClientSession) -> dict[str, Any]:
        found: dict[str, Any] = {
            "validate": await call(client, "validate", file="tickets.yaml"),
            "estimate": await call(client, "estimate", file="tickets.yaml"),
        }
        result = await client.call_tool("optimize", {"file": "tickets.yaml", "seed": 3}, progress_callback=progress)
        found["optimize"] = result.structured_content
        given = {"evaluate": {"file": "optimized.yaml", "split": "val"}, "attribute": {"method": "spectrum"}}
        for name in LOOKS:
            found[name] = await call(client, name, **given.get(name, {}))
        return found

    found = ask(folder, main)
    assert found["validate"]["ok"] and found["validate"]["rows"]["test"] == 40
    assert found["estimate"]["lines"]
    report = found["optimize"]
    assert report["status"] == "finished" and Path(report["workflow"]) == folder / "optimized.yaml"
    assert found["show"]["run"] == report["run"]
    assert [run["run"] for run in found["runs"]["runs"]] == [report["run"]]
    assert isinstance(found["diff"]["changes"], list) and "nodes:" in found["export"]["workflow"]
    assert found["evaluate"]["n"] == 12
    assert found["attribute"]["method"] == "spectrum" and found["attribute"]["nodes"][0]["node"] == "sort"
    counts = [done for done, _, _ in told]
    assert counts == sorted(counts) and counts[-1] >= report["spent"]["calls"] and told[-1][1] == 300
    assert any(said and said.startswith("baseline: val") for _, _, said in told)


@pytest.mark.slow
def test_a_wrong_file_is_told_with_its_place(folder: Path) -> None:
    write(folder, metric="exact_match(lable)")

    async def main(client: ClientSession) -> tuple[Any, str]:
        return await call(client, "validate", file="tickets.yaml"), await refused(
            client, "optimize", file="tickets.yaml"
        )

    checked, said = ask(folder, main)
    assert not checked["ok"] and checked["errors"][0]["line"] and "lable" in checked["errors"][0]["message"]
    assert "lable" in said and re.search(r"tickets\.yaml:\d+:\d+: ", said), (
        "place, then message, then a line with the hint"
    )


@pytest.mark.slow
def test_cancelling_interrupts_the_run_which_can_be_resumed(folder: Path) -> None:
    rows = {"train": 12, "val": 60, "test": 100}
    write(folder, data={"file": "tickets.jsonl", "split": rows}, budget={"calls": 900}, concurrency=1)

    async def main(client: ClientSession) -> tuple[Any, Any]:
        seen = anyio.Event()

        async def progress(done: float, of: float | None, said: str | None) -> None:
            if done >= 5:
                seen.set()

        async with anyio.create_task_group() as group:

            async def optimize() -> None:
                await client.call_tool("optimize", {"file": "tickets.yaml"}, progress_callback=progress)

            group.start_soon(optimize)
            await seen.wait()
            group.cancel_scope.cancel()
        for _ in range(200):
            (run,) = (await call(client, "runs"))["runs"]
            if run["status"] != "running":
                break
            await anyio.sleep(0.1)
        return run, await call(client, "resume")

    run, report = ask(folder, main)
    assert run["status"] == "interrupted" and report["run"] == run["run"] and report["status"] == "finished"
    store = Store(folder / "workbench.db")
    (paid,) = store.rows("select sum(attempts) as n from calls where reused is null")
    store.close()
    assert paid["n"] == report["spent"]["calls"]


@pytest.mark.slow
def test_a_file_that_runs_code_is_refused_until_the_human_trusts_it(folder: Path) -> None:
    (folder / "code.py").write_text(
        "open('RAN', 'w').close()\ndef score(example, prediction, trace=None):\n    return 1.0\n"
    )
    write(folder, metric="python:code.py:score")

    async def attempt(client: ClientSession) -> list[str]:
        asked = [await refused(client, name, file="tickets.yaml") for name in ("estimate", "optimize")]
        asked.append(await refused(client, "optimize", file="--set=metric=python:code.py:score"))
        await call(client, "validate", file="tickets.yaml")
        return asked

    said = ask(folder, attempt)
    assert all("runs Python: python:code.py:score" in text and "workbench trust" in text for text in said[:2])
    assert not list(folder.rglob("RAN"))
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
    environment.pop("WORKBENCH_TRUST", None)
    trust = [sys.executable, "-m", "workbench", "trust", "tickets.yaml"]
    subprocess.run(trust, cwd=folder, env=environment, check=True, capture_output=True)
    assert ask(folder, lambda client: call(client, "estimate", file="tickets.yaml"))["lines"]


@pytest.mark.slow
def test_files_outside_the_root_are_not_touched(folder: Path) -> None:
    (folder / "link.yaml").symlink_to("/etc/hostname")

    async def main(client: ClientSession) -> list[str]:
        asked = []
        for path in ("../elsewhere.yaml", "/etc/passwd", "link.yaml"):
            asked += [await refused(client, name, file=path) for name in ("validate", "estimate", "optimize")]
            asked.append(await refused(client, "optimize", file="tickets.yaml", out=path))
        return asked

    said = ask(folder, main)
    assert len(said) == 12 and all("outside of" in one for one in said)


@pytest.mark.slow
def test_an_argument_is_never_an_option(folder: Path) -> None:
    async def main(client: ClientSession) -> list[str]:
        given: list[dict[str, Any]] = [{"run": "--db=/etc/x"}, {"run": ""}, {"run": "-h"}, {"calls": -1}]
        return [await refused(client, "show", **arguments) for arguments in given]

    assert all("validation" in said.lower() for said in ask(folder, main))


def test_finding_8_a_run_is_a_name_and_never_a_path(folder: Path) -> None:
    """Attacks of the kind "a name or a path": a path, a folder, a link."""
    secret = folder.parent / f"{folder.name}-secret"
    secret.mkdir()
    text = '{"history": [{"role": "SECRET-AGENT", "content": "SECRET"}], "nodes": {"SECRET": {}}}'
    for name in ("log.json", "w.yaml"):
        (secret / name).write_text(text)
    (folder / "linked").symlink_to(secret / "log.json")
    (folder / "here.yaml").symlink_to(secret / "w.yaml")
    Store(folder / "workbench.db").close()
    paths = [
        "linked",
        "here.yaml",
        "/etc/hostname",
        str(secret),
        f"../{secret.name}/log.json",
        f"../{secret.name}/w.yaml",
    ]

    async def main(client: ClientSession) -> list[str]:
        tools = ("attribute", "show", "diff", "export", "resume")
        return [await refused(client, tool, run=path) for tool in tools for path in paths] + [
            await refused(client, "attribute", run=path, method="random") for path in paths
        ]

    said = ask(folder, main)
    assert len(said) == 36 and all("SECRET" not in one and "is not in" in one for one in said), said


@pytest.mark.parametrize(
    "out", [".git/hooks/post-commit", ".github/workflows/x.yaml", ".env", "Makefile", "x.py", "a/.b/x.yaml", "x.yaml\n"]
)
def test_finding_9_a_result_has_no_name_that_other_programs_read_as_theirs(out: str, tmp_path: Path) -> None:
    context: Any = None
    with pytest.raises(ToolError, match="is no name for a result"):
        asyncio.run(Tools(tmp_path, Path("workbench.db")).optimize(context, "tickets.yaml", out=out))


def test_finding_8_a_link_with_the_name_of_a_run_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder.parent / "log.json").write_text('{"history": [{"role": "SECRET-AGENT", "content": "SECRET"}]}')
    assert CliRunner().invoke(cli, ["eval", "tickets.yaml"]).exit_code == 0
    run = json.loads(CliRunner().invoke(cli, ["runs", "list", "--json"]).stdout)[0]["run"]
    Path(run).symlink_to(folder.parent / "log.json")
    done = CliRunner().invoke(cli, ["agent", "attribute", "--method", "random", "--json", "--run", "--", run])
    assert "SECRET" not in done.output + str(done.exception)
    assert [agent["agent"] for agent in json.loads(done.output)["agents"]] == ["sort"]


SKILL = ROOT / "plugins" / "standard" / "workbench_mcp" / "SKILL.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", SKILL.read_text(), re.DOTALL)


def test_the_skill_is_printed_and_says_what_it_is_for() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "agent", "mcp", "--skill"], capture_output=True, text=True, check=True
    )
    assert done.stdout == SKILL.read_text()
    head = yaml.safe_load(done.stdout.split("---")[1])
    assert head["name"] == "workbench" and len(head["description"]) < 1024  # the format's own limits


@pytest.mark.slow
def test_every_command_of_the_skill_works(folder: Path) -> None:
    """In their order, on the file that it shows."""
    (shown,) = blocks("yml")
    (folder / "tickets.yaml").write_text(shown)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    inline = re.findall(r"`(workbench (?:validate --schema|plugin list)[^`]*)`", SKILL.read_text())
    assert len(commands) >= 8 and len(inline) == 2
    for command in (*commands, *inline):
        program, *arguments = shlex.split(command)
        assert program == "workbench"
        job = start_module("workbench", *arguments, env={"XDG_CONFIG_HOME": str(folder / "config")}, cwd=folder)
        out, err = job.communicate(100)
        assert job.returncode == 0, f"{command}: {err}"
        json.loads(out if "schema" in command else out.strip().splitlines()[-1])

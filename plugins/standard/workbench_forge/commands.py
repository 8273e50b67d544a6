"""`workbench agent functions`: list, test and serve the functions in a workflow file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.base.text import indented, one_line
from workbench.cli import echo_json, say
from workbench.cli.options import FILE, JSON

if TYPE_CHECKING:
    from workbench.runtime import Sandbox
    from workbench.task import Function


@click.group("functions")
def functions_command() -> None:
    """List, test and serve the functions in a workflow file."""


@functions_command.command("list")
@FILE
@JSON
def list_command(file: Path, as_json: bool) -> None:
    """List the functions of FILE with their arguments."""
    found = _read(file)
    if as_json:
        return echo_json([{"address": f.address, **f.as_tool()} for f in found])
    for function in found:
        taken = ", ".join(function.parameters.get("properties", {}))
        say(one_line(f"{function.address}: {function.name}({taken})  {function.description}".rstrip()))
    say(f"{len(found)} function(s). Use them elsewhere with functions: {file}#nodes.NAME")


@functions_command.command("test")
@FILE
@JSON
def test_command(file: Path, as_json: bool) -> None:
    """Run the tests of the functions in the sandbox.

    Exits with code 1 if one fails.
    """
    import asyncio

    functions = _read(file)
    outcomes = asyncio.run(_test(functions))
    rows = [
        {"address": f.address, "name": f.name, "tested": f.example is not None, "failure": failure}
        for f, failure in zip(functions, outcomes, strict=True)
    ]
    failed = [row for row in rows if row["failure"]]
    if as_json:
        echo_json(rows)
    for row in () if as_json else rows:
        state = f"FAILED: {row['failure']}" if row["failure"] else "passed" if row["tested"] else "has no test"
        say(indented(f"{row['address']}: {row['name']} {state}"))
    if not as_json:
        tested = sum(row["tested"] for row in rows)
        say(f"{tested - len(failed)} of {tested} passed; {len(rows) - tested} without a test.")
    sys.exit(1 if failed else 0)


async def _test(functions: list[Function]) -> list[str | None]:
    import asyncio

    from workbench.runtime import open_sandbox

    if not any(f.example for f in functions):
        return [None] * len(functions)
    sandbox = await open_sandbox()
    try:
        return list(await asyncio.gather(*(_failure(f, sandbox) for f in functions)))
    finally:
        await sandbox.aclose()


async def _failure(function: Function, sandbox: Sandbox) -> str | None:
    """Run a function's own test. Returns None if it passes or there is none, else the actual outcome."""
    from workbench.base.text import short

    if function.example is None:
        return None
    arguments, wanted = function.example["arguments"], function.example["result"]
    found = await sandbox.call(function.source, function.name, arguments, timeout=function.timeout)
    if not found.ok:
        return f"{found.kind}{f' in line {found.line}' if found.line else ''}: {found.message}"
    return None if found.value == wanted else f"returned {short(found.value, 200)}, not {short(wanted, 200)}"


@functions_command.command("serve")
@FILE
def serve_command(file: Path) -> None:
    """Serve the functions of FILE as MCP tools.

    The transport is stdin and stdout. Each call runs in the sandbox. Needs the extra [mcp].
    """
    import asyncio

    from workbench_forge.serve import serve

    asyncio.run(serve(_read(file), file.stem))


def _read(file: Path) -> list[Function]:
    """Read the functions in a file. They are text: Python modules that the file refers to are not loaded."""
    from workbench.task import read_library

    return read_library(file)

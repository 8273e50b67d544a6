"""`workbench plugin sandbox`: list the sandboxes with their measured level, and install Pyodide for `wasm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workbench.base.text import indented
from workbench.cli import echo_json, say
from workbench.cli.options import JSON


@click.group("sandbox")
def sandbox_command() -> None:
    """List and install sandboxes."""


@sandbox_command.command("list")
@JSON
def list_command(as_json: bool) -> None:
    """List the sandboxes with their measured level.

    Each is opened and attacked. For one that is not available, the reason is shown. Choose one with --sandbox.
    """
    import asyncio

    from workbench.plugins import plugins

    rows = [asyncio.run(_measure(name)) for name in plugins().names("sandboxes")]
    if as_json:
        return echo_json(rows)
    for row in rows:
        level = f"level {row['level']}" if row["level"] else "none"
        say(indented(f"{row['name']}: {level}" + (f" ({row['reason']})" if row["reason"] else "")))


async def _measure(name: str) -> dict[str, Any]:
    from workbench.errors import SandboxError
    from workbench.plugins import plugins

    try:
        sandbox = await plugins().get("sandboxes", name)()
    except SandboxError as error:
        return {"name": name, "level": None, "reason": error.message}
    await sandbox.aclose()
    return {"name": name, "level": sandbox.level, "reason": getattr(sandbox, "reason", "")}


@sandbox_command.command("install")
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Package as written by `npm pack`. [default: run npm]",
)
def install_command(file: Path | None) -> None:
    """Install Pyodide for the sandbox `wasm`.

    A fixed version, 6.5 MB through npm, checked by its hash.
    """
    import asyncio

    from workbench_sandbox.pyodide import VERSION, fetch, find_deno, home, install
    from workbench_sandbox.wasm import ensure_memory_state

    deno, folder = find_deno(), home()
    install(file.read_bytes() if file else fetch(), folder)
    asyncio.run(ensure_memory_state(deno, folder))
    say(f"Pyodide {VERSION} is in {folder}. Try it with workbench plugin sandbox list; use it with --sandbox wasm.")

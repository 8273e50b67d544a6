"""`workbench mcp`: workbench as a server on stdio for coding agents."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli import fail, say


@click.command("mcp")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="The folder of the files that may be used. Default: the current one.",
)
@click.option("--db", default="workbench.db", envvar="WORKBENCH_DB", show_default=True, help="Run database.")
@click.option("--skill", is_flag=True, help="Print SKILL.md, which teaches a coding agent to use workbench, and end.")
def mcp_command(root: Path, db: str, skill: bool) -> None:
    """Serve validate, estimate, optimize, show, attribute and more to a coding agent, by MCP on stdin and stdout.

    A file that runs code is refused until you trust it (`workbench trust`): the agent cannot do that for you.
    """
    if skill:
        return say(Path(__file__).with_name("SKILL.md").read_text(encoding="utf-8"), nl=False)
    from workbench.base.distribution import pip_install

    try:
        from workbench_mcp.server import make_server
    except ImportError:
        return fail(f"the MCP server needs the package mcp, version 2 or newer: {pip_install('mcp')}", 2)
    make_server(root, Path(db)).run("stdio")
    return None

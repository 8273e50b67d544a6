"""`workbench agent mcp`: a server on stdio for coding agents."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli import fail, say
from workbench.cli.options import DB


@click.command("mcp")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="Folder that the coding agent may use. [default: the current folder]",
)
@DB
@click.option("--skill", is_flag=True, help="Print SKILL.md, instructions for coding agents, and exit.")
def mcp_command(root: Path, db: str, skill: bool) -> None:
    """Serve workbench to a coding agent over MCP.

    Its tools are validate, estimate, optimize, show, attribute and more. The transport is stdin and stdout. A file that
    runs code is refused until you trust it (`workbench trust`). The coding agent cannot do that.
    """
    if skill:
        return say(Path(__file__).with_name("SKILL.md").read_text(encoding="utf-8"), nl=False, verbatim=True)
    from workbench.base.distribution import pip_install

    try:
        from workbench_mcp.server import make_server
    except ImportError:
        return fail(f"the MCP server needs the package mcp, version 2 or newer: {pip_install('standard[mcp]')}", 2)
    make_server(root, Path(db)).run("stdio")
    return None

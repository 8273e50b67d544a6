"""`workbench agent mcp`: a server through which coding agents use workbench."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_mcp.commands import mcp_command

    cli.add_command(mcp_command, under="agent")

"""`workbench agent attribute`: which agent and which step decided that a run failed."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_attribute.commands import attribute_command

    cli.add_command(attribute_command, under="agent")

"""`workbench agent attribute`: finds the agent and the step that decided the failure of a run."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_attribute.commands import attribute_command

    cli.add_command(attribute_command, under="agent")

"""`workbench redteam`: rows with and without attacks."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_redteam.commands import redteam_command

    cli.add_command(redteam_command, under="Measure")

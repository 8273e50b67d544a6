"""`workbench data traces`: recorded traces as rows, without duplicates and personal data, in splits that share no
conversation."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_traces.commands import traces_command

    cli.add_command(traces_command, under="data")

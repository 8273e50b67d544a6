"""`workbench import traces`: recorded traces as rows, without duplicates and personal data, in splits that share no
conversation."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench.cli.importing import import_group
    from workbench_traces.commands import traces_command

    import_group(cli).add_command(traces_command)

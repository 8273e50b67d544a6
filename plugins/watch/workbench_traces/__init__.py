"""`workbench data traces`: recorded traces as rows, without duplicates and personal data, in splits that share no
conversation; and `workbench export --format atif`: rows of runs as traces."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl
from workbench.plugins.hookspecs import Register


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_traces.commands import traces_command

    cli.add_command(traces_command, under="data")


@hookimpl
def register_exporters(register: Register) -> None:
    register("atif", "workbench_traces.atif_export:AtifExport")

"""`workbench data import`: DSPy programs, promptfoo configurations and datasets of Inspect as workflows."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_import.commands import import_command

    cli.add_command(import_command, under="data")


@hookimpl
def register_metrics(register: Any) -> None:
    register("assertions", "workbench_import.assertions:Assertions")

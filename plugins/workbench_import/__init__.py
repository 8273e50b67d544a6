"""`workbench import`: DSPy programs, promptfoo configurations and datasets of Inspect as workflows."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench.cli.importing import import_group
    from workbench_import.commands import import_command

    import_group(cli).add_command(import_command)


@hookimpl
def register_metrics(register: Any) -> None:
    register("assertions", "workbench_import.assertions:Assertions")

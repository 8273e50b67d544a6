"""`workbench doctor`: checks the installation, and calls the models of a workflow file."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_doctor.commands import doctor_command

    cli.add_command(doctor_command, under="Begin")

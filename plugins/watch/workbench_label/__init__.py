"""`workbench label`: people score answers, blind, and a judge is compared with them."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl
from workbench.plugins.hookspecs import Register


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_label.commands import label_command

    cli.add_command(label_command, under="Measure")


@hookimpl
def register_claims(register: Register) -> None:
    register("judge", "workbench_label.judge:JudgedGain")

"""`workbench data induce`: metrics from comments on traces; and the metric `induced`, which judges by them."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_metrics(register: Any) -> None:
    register("induced", "workbench_feedback.metric:Induced")


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_feedback.commands import induce_command

    cli.add_command(induce_command, under="data")

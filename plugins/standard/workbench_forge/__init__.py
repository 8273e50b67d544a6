"""Functions forged for agents, and programs for `code` nodes."""

from __future__ import annotations

from typing import Any

import workbench


@workbench.hookimpl
def register_optimizers(register: workbench.plugins.hookspecs.Register) -> None:
    register("forge", "workbench_forge.optimizer:Forge")


@workbench.hookimpl
def register_commands(cli: Any) -> None:
    from workbench_forge.commands import functions_command

    cli.add_command(functions_command, under="agent")

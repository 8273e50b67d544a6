"""`workbench redteam`: runs rows with and without attacks, and tests the claim that a winner is no easier to attack."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl
from workbench.plugins.hookspecs import Register


@hookimpl
def register_claims(register: Register) -> None:
    register("constraints", "workbench_redteam.rise:AttackRise")


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_redteam.commands import redteam_command

    cli.add_command(redteam_command, under="Measure")

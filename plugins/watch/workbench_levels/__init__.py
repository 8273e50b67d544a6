"""Service levels: the claim that a winner meets the targets of its file."""

from __future__ import annotations

import workbench
from workbench.plugins.hookspecs import Register


@workbench.hookimpl
def register_claims(register: Register) -> None:
    register("targets", "workbench_levels.levels:Levels")

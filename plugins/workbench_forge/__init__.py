"""Functions forged for agents, and programs for `code` nodes."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_optimizers(register: workbench.hookspecs.Register) -> None:
    register("forge", "workbench_forge.optimizer:Forge")

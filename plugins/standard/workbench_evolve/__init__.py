"""Population search over workflows."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_optimizers(register: workbench.plugins.hookspecs.Register) -> None:
    register("evolve", "workbench_evolve.optimizer:Evolve")

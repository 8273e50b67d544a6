"""Divide the training rows, optimize on each part, and merge progressively; or optimize without dividing."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_optimizers(register: workbench.plugins.hookspecs.Register) -> None:
    register("fgo", "workbench_fgo.optimizer:Fgo")
    register("rewrite", "workbench_fgo.rewrite:Rewrite")

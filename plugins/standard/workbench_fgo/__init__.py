"""Divide the training rows, optimize on each part, merge progressively; and the same without dividing."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_optimizers(register: workbench.plugins.hookspecs.Register) -> None:
    register("fgo", "workbench_fgo.optimizer:Fgo")
    register("rewrite", "workbench_fgo.rewrite:Rewrite")

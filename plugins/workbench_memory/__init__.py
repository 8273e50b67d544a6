"""Memory: the node kind `recall`, and the optimizer that fills, curates and guards its store."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_node_kinds(register: workbench.plugins.hookspecs.Register) -> None:
    register("recall", "workbench_memory.node:Recall")


@workbench.hookimpl
def register_optimizers(register: workbench.plugins.hookspecs.Register) -> None:
    register("memory", "workbench_memory.optimizer:Memory")

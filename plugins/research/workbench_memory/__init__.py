"""Memory: the node kinds `recall` and `remember`, and the optimizer that fills, curates and guards a store."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_node_kinds(register: workbench.plugins.hookspecs.Register) -> None:
    register("recall", "workbench_memory.node:Recall")
    register("remember", "workbench_memory.row_notes:Remember")


@workbench.hookimpl
def register_optimizers(register: workbench.plugins.hookspecs.Register) -> None:
    register("memory", "workbench_memory.optimizer:Memory")

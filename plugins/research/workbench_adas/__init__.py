"""Agents as code: the node kind `program`, and the optimizer `adas`, which has a model write such programs."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("program", "workbench_adas.node:Program")


@hookimpl
def register_optimizers(register):
    register("adas", "workbench_adas.optimizer:Adas")

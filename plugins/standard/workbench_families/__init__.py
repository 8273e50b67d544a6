"""The optimizer `families`: finds out which kinds of change pay, then searches those together."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("families", "workbench_families.optimizer:Families")

"""The optimizer `random`: the baseline of every comparison, and the template for your own."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("random", "workbench_random.optimizer:Random")

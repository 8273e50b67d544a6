"""An example plugin: one optimizer and one metric."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("hillclimb", "workbench_example.hillclimb:Hillclimb")


@hookimpl
def register_metrics(register):
    register("shorter", "workbench_example.shorter:Shorter")

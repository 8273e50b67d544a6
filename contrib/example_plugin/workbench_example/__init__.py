"""An example plugin: an optimizer, a metric, a node kind and a reader."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("hillclimb", "workbench_example.hillclimb:Hillclimb")


@hookimpl
def register_metrics(register):
    register("shorter", "workbench_example.shorter:Shorter")


@hookimpl
def register_node_kinds(register):
    register("clip", "workbench_example.clip:Clip")


@hookimpl
def register_readers(register):
    register("notes", "workbench_example.notes:read_notes")

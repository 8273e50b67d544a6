"""The optimizer `textgrad`: a loss in words, passed backwards through the graph."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("textgrad", "workbench_textgrad.optimizer:TextGrad")

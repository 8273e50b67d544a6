"""The optimizer `align`: descriptions of tools and views of their results that a model works better with."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("align", "workbench_tool_docs.optimizer:Align")

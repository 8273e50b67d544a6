"""The optimizer `tool_docs`: rewrites tool descriptions and tool results so that a model uses the tools better."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("tool_docs", "workbench_tool_docs.optimizer:ToolDocs")

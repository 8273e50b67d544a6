"""The node `tree_search`: an agent that looks ahead in an environment; the optimizer `fit_value` learns its value."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("tree_search", "workbench_tree_search.node:TreeSearch")


@hookimpl
def register_optimizers(register):
    register("fit_value", "workbench_tree_search.fit_value:FitValue")

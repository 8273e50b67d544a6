"""A* over plans of tool calls: the node `astar`, and the optimizer `astar`, which fills its memory of plans."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("astar", "workbench_astar.node:AStar")


@hookimpl
def register_optimizers(register):
    register("astar", "workbench_astar.optimizer:PlanMemory")

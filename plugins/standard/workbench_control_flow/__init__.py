"""Node kinds that hold other nodes: `loop`, `map`, `tree`, `branch`, `ensemble`, `reflect` and `workflow`."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("loop", "workbench_control_flow.loop:Loop")
    register("map", "workbench_control_flow.map:Map")
    register("tree", "workbench_control_flow.tree:Tree")
    register("ensemble", "workbench_control_flow.ensemble:Ensemble")
    register("branch", "workbench_control_flow.branch:Branch")
    register("reflect", "workbench_control_flow.reflect:Reflect")
    register("workflow", "workbench_control_flow.subworkflow:SubWorkflow")

"""Node kinds that hold other nodes: `ensemble`, `branch`, `reflect` and `workflow`."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("ensemble", "workbench_control_flow.ensemble:Ensemble")
    register("branch", "workbench_control_flow.branch:Branch")
    register("reflect", "workbench_control_flow.reflect:Reflect")
    register("workflow", "workbench_control_flow.subworkflow:SubWorkflow")

"""Node kinds that hold other nodes: `ensemble`, `branch` and `workflow`."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("ensemble", "workbench_flow.ensemble:Ensemble")
    register("branch", "workbench_flow.branch:Branch")
    register("workflow", "workbench_flow.subworkflow:SubWorkflow")

"""Edits of a workflow's structure, for optimizers that search it: see `workbench_kit.searching`."""

from workbench import hookimpl


@hookimpl
def register_edits(register):
    register("ensemble", "workbench_edits.wrapping_edits:Ensemble")
    register("refine", "workbench_edits.wrapping_edits:Refine")
    register("verify", "workbench_edits.wrapping_edits:Verify")
    register("unwrap", "workbench_edits.wrapping_edits:Unwrap")
    register("insert", "workbench_edits.graph_edits:Insert")
    register("remove", "workbench_edits.graph_edits:Remove")
    register("restore", "workbench_edits.graph_edits:Restore")
    register("rewire", "workbench_edits.graph_edits:Rewire")
    register("split", "workbench_edits.graph_edits:Split")
    register("merge", "workbench_edits.graph_edits:Merge")
    register("replace", "workbench_edits.node_edits:Replace")
    register("reason", "workbench_edits.node_edits:Reason")
    register("tool", "workbench_edits.node_edits:Tool")
    register("model", "workbench_edits.node_edits:Model")

"""Edits of a workflow's structure, for optimizers that search it: see `workbench.edits`."""

from workbench import hookimpl


@hookimpl
def register_edits(register):
    register("ensemble", "workbench_structure.wrap:Ensemble")
    register("refine", "workbench_structure.wrap:Refine")
    register("verify", "workbench_structure.wrap:Verify")
    register("unwrap", "workbench_structure.wrap:Unwrap")
    register("insert", "workbench_structure.graph:Insert")
    register("remove", "workbench_structure.graph:Remove")
    register("restore", "workbench_structure.graph:Restore")
    register("rewire", "workbench_structure.graph:Rewire")
    register("split", "workbench_structure.graph:Split")
    register("merge", "workbench_structure.graph:Merge")
    register("replace", "workbench_structure.inside:Replace")
    register("reason", "workbench_structure.inside:Reason")
    register("tool", "workbench_structure.inside:Tool")
    register("model", "workbench_structure.inside:Model")

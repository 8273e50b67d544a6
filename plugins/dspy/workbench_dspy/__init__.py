"""DSPy's optimizers under workbench's budget, journal and proof; DSPy modules as nodes; workflows as DSPy programs."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("dspy_bootstrap", "workbench_dspy.optimizers:DSPyBootstrap")
    register("dspy_mipro", "workbench_dspy.optimizers:DSPyMIPRO")
    register("dspy_gepa", "workbench_dspy.optimizers:DSPyGEPA")


@hookimpl
def register_node_kinds(register):
    register("dspy", "workbench_dspy.node:DSPyModule")


@hookimpl
def register_exporters(register):
    register("dspy", "workbench_dspy.export:export")

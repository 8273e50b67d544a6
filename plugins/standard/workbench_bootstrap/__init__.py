"""The optimizer `bootstrap`: demos from labels and from the workflow's own successes, chosen by Optuna."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("bootstrap", "workbench_bootstrap.optimizer:Bootstrap")

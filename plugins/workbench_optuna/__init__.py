"""The optimizer `optuna`: any search space, any sampler, several objectives, paired pruning."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("optuna", "workbench_optuna.optimizer:Optuna")

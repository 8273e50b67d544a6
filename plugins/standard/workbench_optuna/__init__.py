"""`optuna`: any search space and sampler, several objectives, paired pruning. `tune`: settings of another optimizer."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("optuna", "workbench_optuna.optimizer:Optuna")
    register("tune", "workbench_optuna.tune:Tune")

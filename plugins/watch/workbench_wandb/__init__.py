"""`track: wandb`: settings, scores by step, the final report and the result in Weights & Biases."""

from workbench import hookimpl


@hookimpl
def register_trackers(register):
    register("wandb", "workbench_wandb.tracker:WandB")

"""The optimizer `grpo`: trains the weights of the workflow's language model by reinforcement learning."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("grpo", "workbench_grpo.optimizer:GRPO")


@hookimpl
def register_lms(register):
    register("policy", "workbench_grpo.serve:policy")

"""The optimizers `grpo`, `sft` and `dpo`: training the weights of the workflow's language model."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("grpo", "workbench_grpo.optimizer:GRPO")
    register("sft", "workbench_grpo.imitate:SFT")
    register("dpo", "workbench_grpo.imitate:DPO")


@hookimpl
def register_lms(register):
    register("policy", "workbench_grpo.serve:policy")


@hookimpl
def share_run(rank, size, command):
    from workbench_grpo.processes import share

    return share(rank, size, command)

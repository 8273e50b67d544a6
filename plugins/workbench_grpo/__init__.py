"""The optimizers `grpo`, `sft` and `dpo`, which train the weights of the workflow's language model, and a metric."""

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
def register_metrics(register):
    register("tool_n1", "workbench_grpo.metric:ToolN1")


@hookimpl
def register_exporters(register):
    register("vllm", "workbench_grpo.export:vllm")
    register("verl", "workbench_grpo.export:verl")


@hookimpl
def share_run(rank, size, command):
    from workbench_grpo.processes import share

    return share(rank, size, command)

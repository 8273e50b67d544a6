"""The optimizers `grpo`, `sft` and `dpo`, which train the workflow's language model, those of papers, and a metric."""

from pathlib import Path

from workbench import hookimpl


def paper_optimizers() -> dict[str, str]:
    """`module:class` of each optimizer in `papers/`, by its name. Imports none: `workbench --help` asks, too."""
    names = sorted(path.parent.name for path in Path(__file__).parent.glob("papers/*/optimizer.py"))
    return {name: f"workbench_training.papers.{name}.optimizer:OPTIMIZER" for name in names}


@hookimpl
def register_optimizers(register):
    register("grpo", "workbench_training.grpo:GRPO")
    register("sft", "workbench_training.sft:SFT")
    register("dpo", "workbench_training.dpo:DPO")
    for name, address in paper_optimizers().items():
        register(name, address)


@hookimpl
def register_lms(register):
    register("policy", "workbench_training.serving.policy_lm:policy")


@hookimpl
def register_metrics(register):
    register("tool_n1", "workbench_training.metric:ToolN1")


@hookimpl
def register_exporters(register):
    register("vllm", "workbench_training.export:vllm")


@hookimpl
def removable_files(database, runs, kept):
    from workbench_training.state.checkpoints import removable_files

    return removable_files(database, runs, kept)


@hookimpl
def share_run(rank, size, command):
    from workbench_training.scale.distributed import share

    return share(rank, size, command)

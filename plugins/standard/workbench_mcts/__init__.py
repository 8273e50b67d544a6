"""The optimizer `mcts`: tree search over the structure of a workflow, with a surrogate that saves evaluations."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("mcts", "workbench_mcts.optimizer:MCTS")

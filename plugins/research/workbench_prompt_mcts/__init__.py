"""The optimizer `prompt_mcts`: tree search over instructions, led by what goes wrong."""

from workbench import hookimpl


@hookimpl
def register_optimizers(register):
    register("prompt_mcts", "workbench_prompt_mcts.optimizer:PromptMCTS")

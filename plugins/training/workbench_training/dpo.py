"""The optimizer `dpo`: learning from pairs, without a policy gradient.

It raises the likelihood of the better of two rollouts of a row over the worse, relative to the initial weights
(Rafailov et al., arXiv 2305.18290; pairs by generate, rank, select and train as in Optima, arXiv 2410.08115). Both
begin with one prompt, and are compared with all that was drawn in them (`rollouts/preference_pairs.py`). With
`tree`, the pairs are answers to one prompt, ranked by the rewards of the runs through them
(`rollouts/rollout_trees.py`). With `pairs`, nothing is drawn: they are read from a file (`rollouts/stored_pairs.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field, field_validator, model_validator

from workbench import Study
from workbench.errors import SpecError, suggest
from workbench.task import Example
from workbench_kit.files import FilePath
from workbench_training.extension import with_recipes
from workbench_training.imitation import ImitationOptimizer
from workbench_training.objective import Objective, pair_losses
from workbench_training.rollouts.preference_pairs import choose_pairs, rewards_differ, split_sides
from workbench_training.rollouts.sft_data import SFTExample, find_trained_nodes, make_chat_tokenizer
from workbench_training.rollouts.stored_pairs import read_pairs, tokenize_pairs
from workbench_training.rollouts.study_rollouts import StudyRolloutSource
from workbench_training.settings import TrainingSchedule

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy
    from workbench_training.rollouts.token_rows import RolloutRows, Row


@with_recipes("dpo")
class DPO(ImitationOptimizer):
    """Trains the language model to prefer, of its own rollouts on a row, the better to the worse."""

    pairs: FilePath = Field(
        "",
        description="file of pairs to learn from, in place of rollouts: rows with the inputs of the trained node, and "
        "its output as `chosen` and as `rejected`; relative to the workflow file",
    )
    beta: float = Field(
        0.1,
        gt=0,
        description="temperature of the preference: smaller values move further; weight of the odds ratio",
    )
    loss: str = Field(
        "dpo",
        description="what is compared: dpo: gains on the weights at the start; odds_ratio: odds, beside the likelihood "
        "of the better answer (ORPO)",
    )

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, value: str) -> str:
        if value not in (losses := pair_losses()):
            raise ValueError(f"there is no loss over pairs '{value}'. {suggest(value, losses)}")
        return value

    @model_validator(mode="after")
    def _has_pairs(self) -> DPO:
        drawn = {
            "rollouts": "rollouts" in self.model_fields_set,
            "tree": self.tree is not None,
            "rounds": self.rounds > 1,
        }
        drawn |= {name: bool(recipe.extra_calls) for name, recipe in self.recipes.items()}
        if self.pairs and any(drawn.values()):
            named = max(drawn, key=drawn.__getitem__)
            raise ValueError(f"`pairs` are learned from once, and no rollout is drawn: remove `{named}`")
        if self.tree is None and self.rollouts < 2:
            raise ValueError("dpo learns from two rollouts of a row that differ: give `rollouts` of 2 or more")
        return self

    @property
    def draws(self) -> bool:
        return not self.pairs

    async def ready(self, study: Study) -> None:
        await super().ready(study)
        if self.pairs:
            self._read_pairs(study)

    def _read_pairs(self, study: Study) -> list[tuple[SFTExample, SFTExample]]:
        names = find_trained_nodes(study.workflow, self.address)
        nodes = [node for name, node in study.workflow.enabled_nodes.items() if name in names]
        if len(nodes) != 1:
            raise SpecError(
                f"`pairs` are answers of one node, and {len(nodes)} are trained",
                hint="Name it: address: nodes.NAME.lm.",
                path=("pairs",),
            )
        return self.read_file(study, "pairs", partial(read_pairs, node=nodes[0]))

    def affords(self, study: Study, source: StudyRolloutSource, schedule: TrainingSchedule, round_: int) -> bool:
        if self.pairs:
            return study.remaining("calls") >= study.planned_calls(study.workflow, study.val)
        if not self.calls_beside or not source.affords(schedule, round_):
            return source.affords(schedule, round_)
        rows = list(study.train)[: self.tasks]
        calls = study.planned_calls(study.workflow, study.val) + self.rollouts * study.planned_calls(
            study.workflow, rows
        )
        return study.remaining("calls") >= calls + self.rollouts * len(rows) * self.calls_beside

    async def chosen(
        self,
        study: Study,
        policy: Policy,
        source: StudyRolloutSource,
        tasks: Sequence[Example],
        schedule: TrainingSchedule,
        round_: int,
    ) -> list[list[Row]]:
        picks = [await recipe.choose(source, tasks, schedule, round_) for recipe in self.recipes.values()]
        chosen = next((pairs for pairs in picks if pairs is not None), None)
        if self.pairs:
            pairs = self._read_pairs(study)
            chosen = tokenize_pairs(pairs, make_chat_tokenizer(policy))
            study.log(f"{len(chosen)} of {len(pairs)} pairs to learn from", rows=len(chosen))
        if chosen is None:
            chosen = await super().chosen(study, policy, source, tasks, schedule, round_)
        for recipe in self.recipes.values():
            if (masked := recipe.mask_pairs(chosen, policy.generator.tokenizer)) is not None:
                pairs, left = (sum(len(split_sides(rows)) for rows in some) for some in (chosen, masked))
                if lost := pairs - left:
                    study.log(f"{lost} of {pairs} comparisons have no answer beside their thoughts", rows=lost)
                chosen = masked
        return chosen

    def objective(self) -> Objective:
        # `beta` keeps the weights at the start, for losses that compare with them.
        beta = self.beta if pair_losses()[self.loss].reads_reference else 0.0
        return Objective.model_validate(
            {"surrogate": "pairs", "pair_loss": self.loss, "pair_beta": self.beta, "beta": beta}
        )

    def choose(self, rollouts: Sequence[RolloutRows]) -> list[RolloutRows]:
        """The best and the worst rollout from each first prompt, if they differ; in a tree, those of each state, if far
        enough apart. Both sides of a comparison have a task of their own (`preference_pairs.py`)."""
        return choose_pairs(rollouts, self.tree.margin if self.tree is not None else 0.0)

    def explain_unused(self, rollouts: Sequence[RolloutRows]) -> str:
        if self.tree is None and rewards_differ(rollouts):
            return "have rollouts that differ, of which no two were given the same prompt and wrote different tokens"
        return ""

"""The optimizer `dpo`: learning from pairs, without a policy gradient.

It raises the likelihood of the better of two rollouts of a row over the worse, relative to the initial weights
(Rafailov et al., arXiv 2305.18290; pairs by generate, rank, select and train as in Optima, arXiv 2410.08115). With
`tree`, the pairs are answers to one prompt, ranked by the rewards of the runs through them
(`rollouts/rollout_trees.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from workbench_training.imitation import ImitationOptimizer
from workbench_training.objective import Objective
from workbench_training.rollouts.rollout_trees import group_by_state

if TYPE_CHECKING:
    from workbench_training.rollouts.token_rows import Row


class DPO(ImitationOptimizer):
    """Trains the language model to prefer, of its own rollouts on a row, the better to the worse."""

    beta: float = Field(0.1, gt=0, description="temperature of the preference: smaller values move further")

    @model_validator(mode="after")
    def _has_pairs(self) -> DPO:
        if self.tree is None and self.rollouts < 2:
            raise ValueError("dpo learns from two rollouts of a row that differ: give `rollouts` of 2 or more")
        return self

    def objective(self) -> Objective:
        return Objective.model_validate(
            {
                "surrogate": "pairs",
                "pair_mean": False,
                "pair_best": 1.0,
                "pair_trust": 0.0,
                "pair_beta": self.beta,
                "beta": self.beta,  # so that the weights at the start are kept
            }
        )

    def choose(self, rows: Sequence[Row]) -> list[Row]:
        """The best and the worst of each agent, if they differ; in a tree, those of each state, if far enough apart."""
        chosen = []
        if self.tree is not None:
            for ranked in group_by_state(rows).values():
                if (ranked[-1].reward or 0.0) - (ranked[0].reward or 0.0) >= max(self.tree.margin, 1e-9):
                    chosen += [ranked[-1], ranked[0]]
            return chosen
        for agent in dict.fromkeys(row.agent for row in rows):
            ranked = sorted((row for row in rows if row.agent == agent), key=lambda row: row.reward or 0.0)
            if ranked[0].reward != ranked[-1].reward:
                chosen += [ranked[-1], ranked[0]]
        return chosen

"""A learner whose advantages come from a critic that it trains beside the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from workbench_training.critic.value_learner import ValueLearner
from workbench_training.extension import load
from workbench_training.learner import Learner
from workbench_training.model.policy import Policy, Weights
from workbench_training.objective import Objective, critic_kinds
from workbench_training.rollouts.token_rows import Batch, Row
from workbench_training.settings import Learning


class CriticLearner(Learner):
    """Values of states in place of comparisons within groups, as in PPO."""

    def __init__(self, policy: Policy, objective: Objective, learning: Learning):
        assert objective.critic is not None
        super().__init__(policy, objective, learning)
        kind: type[ValueLearner] = load(critic_kinds()[objective.critic.of].address)
        self.critic = kind(policy, objective.critic, learning)

    def step(
        self,
        rows: Sequence[Row],
        advantages: Sequence[float],
        version: int,
        rate: float | None = None,
        done: int | None = None,
    ) -> dict[str, float]:
        """As of a Learner. advantages: not used, since the critic gives them."""
        self.critic.start_step(rows)
        if self.critic.steps > self.critic.settings.warmup:
            found = super().step(rows, advantages, version, rate, done)
        else:
            self.critic.compute_advantages(rows)
            found = dict[str, float]()
        self.critic.end_step()
        return found | self.critic.figures

    def _spread(
        self,
        values: torch.Tensor,
        batch: Batch,
        rows: Sequence[Row],
        old: torch.Tensor | None,
        ref: torch.Tensor | None,
    ) -> torch.Tensor:
        """The advantages of tokens by the critic: (rows, tokens)."""
        penalty = None
        if self.objective.beta and self.objective.kl_place == "reward":
            assert old is not None and ref is not None
            penalty = (self.objective.beta * (old - ref)).double().cpu().numpy()
        return self.critic.tensor(self.critic.compute_advantages(rows, penalty))

    def tensors(self) -> dict[str, Weights]:
        return super().tensors() | self.critic.tensors()

    def load(self, tensors: Mapping[str, Weights]) -> None:
        super().load(tensors)
        self.critic.load(tensors)

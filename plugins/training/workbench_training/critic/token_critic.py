"""A critic of tokens: a value before each drawn token, and advantages by GAE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from workbench_training.critic.returns import Array, compute_gae, normalise
from workbench_training.critic.value_learner import Tensor, ValueLearner
from workbench_training.rollouts.token_rows import Row

#: Decay of the advantage estimate, and the most that a value moves in a step: TRL's PPOConfig and POAD's code agree.
LAMBDA, CLIP = 0.95, 0.2


class TokenCritic(ValueLearner):
    """The critic that stood at the start of a step gives the advantages; then it is updated towards
    the returns, by at most `CLIP`: the larger of the errors with and without that limit counts (as PPO2 in OpenAI's
    baselines, POAD's code, and TRL)."""

    def compute_advantages(self, rows: Sequence[Row], penalty: Array | None = None) -> Array:
        self._rows = rows
        self._trajectories = self.trajectories(rows)
        (self._before,) = self.read(rows, "token", "v")
        advantages: list[Array] = []
        self._returns: list[Array] = []
        for t in self._trajectories:
            rewards = t.rewards if penalty is None else t.rewards - penalty[t.rows, t.places]
            values = self._before[t.rows, t.places]
            found = compute_gae(rewards, values, t.ends, gamma=self.settings.gamma, lam=LAMBDA)
            advantages.append(found[0])
            self._returns.append(found[1])
        if advantages:
            whole = normalise(np.concatenate(advantages))
            advantages = np.split(whole, np.cumsum([len(a) for a in advantages])[:-1])
        return self.spread(rows, advantages)

    def end_step(self) -> None:
        if not self._trajectories:
            return
        returns = np.full(self._before.shape, np.nan)
        for t, found in zip(self._trajectories, self._returns, strict=True):
            returns[t.rows, t.places] = found
        goal, before = self.tensor(returns), self.tensor(self._before)

        def loss(states: Tensor, which: Tensor, places: Tensor) -> Tensor:
            value, target, start = self.model.heads["v"](states), goal[which, places], before[which, places]
            return compute_value_errors(value, start, target).sum()

        losses = [self.fit(self._rows, "token", loss, number) for number in range(self.settings.epochs)]
        self.figures["value_loss"] = losses[0]
        every = np.concatenate(self._returns)
        left = every - np.concatenate([self._before[t.rows, t.places] for t in self._trajectories])
        self.figures["value_explained"] = float(1 - left.var() / every.var()) if every.var() > 0 else 0.0


def compute_value_errors(values: Tensor, before: Tensor, returns: Tensor) -> Tensor:
    """Half the squared error of each value. The error of a value that moved at most by `CLIP` counts where it is
    larger, so that a value beyond has no gradient that takes it further."""
    clipped = before + (values - before).clamp(-CLIP, CLIP)
    return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)

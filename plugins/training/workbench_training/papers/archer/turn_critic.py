"""The critic of turns: what each turn was worth, and what the states before turns are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from workbench_training.critic.returns import Array, Indices, Turns, gather_turns
from workbench_training.critic.value_learner import Loss, Tensor, ValueLearner
from workbench_training.model.policy import Policy, Weights
from workbench_training.objective import Critic
from workbench_training.rollouts.token_rows import Row
from workbench_training.settings import Learning

VALUES, WORTHS = ("v1", "v2"), ("q1", "q2")
#: The share of the critic that its copy takes over after each pass (theirs), and the steps whose turns are learned from
#: (theirs all, ours few: an old policy's turns say little of this one's).
TAU, REPLAY = 0.1, 4


class TurnCritic(ValueLearner):
    """Values before and after each turn of the policy, by temporal differences. The critic is updated first, on turns
    of this step and of some before, against a copy of itself that follows it slowly."""

    def __init__(self, policy: Policy, settings: Critic, learning: Learning):
        super().__init__(policy, settings, learning)
        self.targets = self.model.snapshot()
        self.buffer: list[list[Row]] = []  # rows of the last steps, the newest last

    def start_step(self, rows: Sequence[Row]) -> None:
        super().start_step(rows)
        apart = [replace(row, version=self.steps) for row in rows]  # from those of other steps, whatever drew them
        self.buffer = [*self.buffer, apart][-REPLAY:]
        recent = [row for some in self.buffer for row in some]
        losses = [self._update(recent, rows, number) for number in range(self.settings.epochs)]
        self.figures["value_loss"] = math.fsum(losses) / len(losses)

    def _update(self, recent: Sequence[Row], fresh: Sequence[Row], number: int) -> float:
        """Make a pass over the turns of recent steps, and over the states of this one, and return the mean loss."""
        total = 0.0
        if (turns := self._turns(recent)) is not None:
            with self.model.having(self.targets):
                values = self.read(recent, "start", *VALUES)
            following = [compute_turn_targets(turns, v[turns.starts], self.settings.gamma) for v in values]
            goals = [_place(turns.ends, found, like) for found, like in zip(following, values, strict=True)]
            total += self.fit(recent, "end", self._squared(WORTHS, goals), number)
        if (turns := self._turns(fresh)) is not None:
            with self.model.having(self.targets):
                worths = self.read(fresh, "end", *WORTHS)
            goals = [_place(turns.starts, found[turns.ends], found) for found in worths]
            total += self.fit(fresh, "start", self._squared(VALUES, goals), number)
        with torch.no_grad():
            for name, p in self.model.trained.items():
                self.targets[name].lerp_(p, TAU)
        return total

    def _turns(self, rows: Sequence[Row]) -> Turns | None:
        found = self.trajectories(rows)
        return gather_turns(found) if found else None

    def _squared(self, heads: Sequence[str], goals: Sequence[Array]) -> Loss:
        wanted = [(head, self.tensor(values)) for head, values in zip(heads, goals, strict=True)]

        def loss(states: Tensor, which: Tensor, places: Tensor) -> Tensor:
            errors = [(self.model.heads[head](states) - goal[which, places]) ** 2 for head, goal in wanted]
            return torch.stack(errors).sum()

        return loss

    def compute_advantages(self, rows: Sequence[Row], penalty: Array | None = None) -> Array:
        assert penalty is None  # the objective refuses a divergence in the reward
        trajectories, turns = self.trajectories(rows), self._turns(rows)
        if turns is None:
            return self.spread(rows, [])
        value, worth = np.minimum(*self.read(rows, "start", *VALUES)), np.minimum(*self.read(rows, "end", *WORTHS))
        gains = np.repeat(worth[turns.ends] - value[turns.starts], turns.lengths)
        return self.spread(rows, np.split(gains, np.cumsum([len(t.rows) for t in trajectories])[:-1]))

    def end_step(self) -> None:
        """Nothing: the critic was updated before."""

    def tensors(self) -> dict[str, Weights]:
        return super().tensors() | {"critic_targets": self.targets}

    def load(self, tensors: Mapping[str, Weights]) -> None:
        super().load(tensors)
        self.targets = {name: t.to(self.policy.device) for name, t in tensors["critic_targets"].items()}

    def record(self) -> dict[str, Any]:
        return super().record() | {"buffer": [[row.as_dict() for row in rows] for rows in self.buffer]}

    def restore_record(self, record: Mapping[str, Any]) -> None:
        super().restore_record(record)
        self.buffer = [[Row.from_dict(row) for row in rows] for rows in record["buffer"]]


def compute_turn_targets(turns: Turns, values: Array, gamma: float) -> Array:
    """Targets of the worth of each turn: its reward, and the discounted value of the next state (Zhou et al., arXiv
    2402.19446, section 3.1). values: (turns,), of the states before them; nothing follows the final one."""
    return turns.rewards + gamma * np.where(turns.final, 0.0, np.roll(values, -1))


def _place(places: tuple[Indices, Indices], values: Array, like: Array) -> Array:
    """A table with values at some places, NaN elsewhere."""
    table = np.full(like.shape, np.nan)
    table[places] = values
    return table

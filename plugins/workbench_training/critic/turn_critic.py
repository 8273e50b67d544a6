"""A critic of turns (ArCHer): values before and after each turn of the policy, learned by temporal differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from workbench_training.critic.returns import Array, Indices, Turns, compute_turn_targets, gather_turns
from workbench_training.critic.value_learner import Loss, Tensor, ValueLearner
from workbench_training.model.policy import Policy, Weights
from workbench_training.objective import HEADS, Critic
from workbench_training.rollouts.token_rows import Row
from workbench_training.settings import Learning

VALUES, WORTHS = HEADS["turn"][:2], HEADS["turn"][2:]


class TurnCritic(ValueLearner):
    """The critic is updated first, on turns of this step and of some before, against a copy of itself that follows it
    slowly: the worth q of a turn becomes its reward and the discounted value v of the next state, the value of a state
    the worth of the turn that was drawn there. There are two of each, and a turn's advantage is min(q) - min(v), on all
    of its tokens (Zhou et al., arXiv 2402.19446; their code at 1bcbf80).

    Departures: v is learned from the turns of this step alone, which this policy drew, where the authors draw new ones
    for states of their buffer. The buffer has `replay` steps, theirs all of them. A turn is judged by the decoder's
    state after its last token, where theirs encodes question and answer apart. A pass uses each turn once, where they
    draw some from the buffer.
    """

    def __init__(self, policy: Policy, settings: Critic, learning: Learning, *, subgoals: bool = False):
        super().__init__(policy, settings, learning, subgoals=subgoals)
        self.targets = self.model.snapshot()
        self.buffer: list[list[Row]] = []  # rows of the last steps, the newest last

    def start_step(self, rows: Sequence[Row]) -> None:
        super().start_step(rows)
        apart = [replace(row, version=self.steps) for row in rows]  # from those of other steps, whatever drew them
        self.buffer = [*self.buffer, apart][-self.settings.replay :]
        recent = [row for some in self.buffer for row in some]
        losses = [self._update(recent, rows, number) for number in range(self.settings.epochs)]
        self.figures["value_loss"] = math.fsum(losses) / len(losses)

    def _update(self, recent: Sequence[Row], fresh: Sequence[Row], number: int) -> float:
        """One pass over the turns of recent steps, and over the states of this one; returns the mean loss."""
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
                self.targets[name].lerp_(p, self.settings.tau)
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


def _place(places: tuple[Indices, Indices], values: Array, like: Array) -> Array:
    """A table with values at some places, NaN elsewhere."""
    table = np.full(like.shape, np.nan)
    table[places] = values
    return table

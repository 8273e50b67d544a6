"""The loss of an update, micro-batch by micro-batch: the objective's loss function, divided by counts of all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workbench_training.extension import load
from workbench_training.loss import Pairs, find_pairs, policy_loss
from workbench_training.objective import Objective, pair_losses
from workbench_training.rollouts.token_rows import Row


@dataclass(frozen=True)
class Terms:
    """Of one micro-batch: log-probabilities now, advantages, mask, log-probabilities before and of the reference, the
    weights that correct sampling, each rows x tokens, and which rows these are."""

    logp: torch.Tensor
    spread: torch.Tensor
    mask: torch.Tensor
    old: torch.Tensor
    ref: torch.Tensor | None
    weight: torch.Tensor | None
    indices: list[int]


class StepLoss:
    """The loss of one update on some rows of a step."""

    def __init__(self, objective: Objective, rows: Sequence[Row], chosen: Sequence[int], *, tokens: float):
        """chosen: the rows of this update. tokens: that they hold."""
        self.objective, self.rows, self.count, self.tokens = objective, rows, len(chosen), tokens
        self.pairs = 0
        if objective.surrogate == "pairs":
            self.pairs = len(find_pairs(self._rewards(chosen), self._groups(chosen)))
            self.pair_loss = load(pair_losses()[objective.pair_loss].address)

    def compute(self, terms: Terms) -> tuple[torch.Tensor, dict[str, float]]:
        """(loss, figures) of a micro-batch."""
        logp, mask, indices = terms.logp, terms.mask, terms.indices
        if self.objective.surrogate == "pairs":
            rewards, groups = self._rewards(indices), self._groups(indices)
            pairs = Pairs(logp, mask, terms.old, terms.ref, rewards, groups, self.pairs, self.tokens)
            return self.pair_loss(pairs, self.objective.pair_beta)
        return policy_loss(
            logp,
            terms.spread,
            mask,
            self.objective,
            old=terms.old,
            ref=terms.ref,
            weight=terms.weight,
            rows=self.count,
            tokens=self.tokens,
        )

    def _rewards(self, indices: Sequence[int]) -> list[float]:
        """Rewards of rows; NaN for an unscored row, which is neither better nor worse than any other."""
        return [math.nan if (reward := self.rows[i].reward) is None else reward for i in indices]

    def _groups(self, indices: Sequence[int]) -> list[tuple[str, str]]:
        return [(self.rows[i].task, self.rows[i].agent) for i in indices]

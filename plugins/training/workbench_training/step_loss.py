"""The loss of an update, micro-batch by micro-batch: the objective's loss function, divided by counts of all rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from workbench_training.extension import load
from workbench_training.loss import Pairs, find_pairs, group_rows, policy_loss
from workbench_training.objective import BEST, Objective, pair_losses
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

    def __init__(self, objective: Objective, rows: Sequence[Row], chosen: Sequence[int]):
        """chosen: the rows of this update. Those that teach nothing count in its divisors."""
        self.objective, self.rows = objective, rows
        self.tokens = float(sum(rows[i].drawn for i in chosen))
        counted = Counter[Hashable]()  # tokens of each rollout
        for i in chosen:
            counted[self._unit(i)] += rows[i].drawn
        self.lengths, self.count, self.pairs = counted, len(counted), 0
        if objective.surrogate == "pairs":
            rewards, groups = self._rewards(chosen), self._groups(chosen)
            first = [members[0] for members in group_rows(rewards, groups, self._rollouts(chosen))]
            self.pairs = len(find_pairs([rewards[i] for i in first], [groups[i] for i in first]))
            self.pair_loss = load(pair_losses()[objective.pair_loss].address)

    def compute(self, terms: Terms) -> tuple[torch.Tensor, dict[str, float]]:
        """(loss, figures) of a micro-batch."""
        logp, mask, indices = terms.logp, terms.mask, terms.indices
        if self.objective.surrogate == "pairs":
            rewards, groups = self._rewards(indices), self._groups(indices)
            best = [(score := self.rows[i].score) is not None and score >= BEST for i in indices]
            if all(self.rows[i].score is None for i in indices):
                best = [reward >= BEST for reward in rewards]
            pairs = Pairs(
                logp,
                mask,
                terms.old,
                terms.ref,
                rewards,
                groups,
                self.pairs,
                self.tokens,
                self._rollouts(indices),
                best,
            )
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
            lengths=logp.new_tensor([self.lengths[self._unit(i)] for i in indices]),
        )

    def _unit(self, i: int) -> Hashable:
        """The rollout that a row counts with."""
        return self.rows[i].unit if self.objective.counts_rollouts else i

    def _rewards(self, indices: Sequence[int]) -> list[float]:
        """Rewards of rows; NaN for an unscored row, which is neither better nor worse than any other."""
        return [math.nan if (reward := self.rows[i].reward) is None else reward for i in indices]

    def _groups(self, indices: Sequence[int]) -> list[str]:
        return [self.rows[i].task for i in indices]

    def _rollouts(self, indices: Sequence[int]) -> list[int]:
        return [self.rows[i].rollout for i in indices]

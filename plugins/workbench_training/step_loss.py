"""The loss of an update, micro-batch by micro-batch: the objective's loss function, divided by counts of all rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from workbench_training.advantages import group_answers
from workbench_training.loss import find_pairs, pairwise_loss, policy_loss, preference_loss
from workbench_training.objective import Objective
from workbench_training.recipes.odds_ratio import odds_ratio_loss
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

    def __init__(
        self, objective: Objective, rows: Sequence[Row], chosen: Sequence[int], *, tokens: float, max_tokens: int
    ):
        """chosen: the rows of this update. tokens: that they hold. max_tokens: for the aggregate `constant`."""
        self.objective, self.rows, self.count = objective, rows, len(chosen)
        self.tokens, self.max_tokens = tokens, max_tokens
        self.pairs, self.scored = 0, 0
        self.answers: Sequence[tuple[Hashable, Hashable]] = ()
        if objective.surrogate == "pairs":
            self.pairs = len(find_pairs(self._rewards(chosen), self._groups(chosen)))
        elif objective.surrogate == "pairwise":
            self.answers = group_answers(rows, objective)
            self.scored = len({self.answers[i] for i in chosen if self.answers[i][0] is not None})

    def compute(self, terms: Terms) -> tuple[torch.Tensor, dict[str, float]]:
        """(loss, figures) of a micro-batch."""
        logp, mask, indices = terms.logp, terms.mask, terms.indices
        if self.objective.surrogate == "pairs" and self.objective.pair_form == "odds_ratio":
            rewards, groups, weight = self._rewards(indices), self._groups(indices), self.objective.pair_beta
            return odds_ratio_loss(logp, mask, rewards, groups, weight=weight, pairs=self.pairs)
        if self.objective.surrogate == "pairs":
            assert terms.ref is not None
            return preference_loss(
                logp,
                terms.ref,
                mask,
                self._rewards(indices),
                self._groups(indices),
                self.objective,
                old=terms.old,
                pairs=self.pairs,
                tokens=self.tokens,
            )
        if self.objective.surrogate == "pairwise":
            answers = [self.answers[i] for i in indices]
            return pairwise_loss(
                logp, terms.spread[:, 0], mask, answers, self.objective, old=terms.old, count=self.scored
            )
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
            max_tokens=self.max_tokens,
        )

    def _rewards(self, indices: Sequence[int]) -> list[float]:
        """Rewards of rows; NaN for an unscored row, which is neither better nor worse than any other."""
        return [math.nan if (reward := self.rows[i].reward) is None else reward for i in indices]

    def _groups(self, indices: Sequence[int]) -> list[tuple[str, str]]:
        return [(self.rows[i].task, self.rows[i].agent) for i in indices]

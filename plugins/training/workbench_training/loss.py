"""The policy loss: a pure function of log-probabilities, advantages, a mask and an objective.

All sums over a step are divided by the counts of the whole step, which the caller passes: so the gradient does not
depend on how the step is split into micro-batches, in which order rows come, or how wide they are padded.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

from workbench_training.objective import Objective, RatioOf

Tensor = torch.Tensor


def policy_loss(
    logp: Tensor,
    advantage: Tensor,
    mask: Tensor,
    objective: Objective,
    *,
    old: Tensor | None = None,
    ref: Tensor | None = None,
    weight: Tensor | None = None,
    rows: int | None = None,
    tokens: float | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a micro-batch, and figures about it. Raises ValueError without a `ref` that the objective needs.

    Args:
        logp: log-probabilities (rows, tokens) with gradient.
        advantage: (rows,) or (rows, tokens).
        mask: (rows, tokens), 1.0 on tokens that the policy sampled.
        old: logp of the policy that sampled them (rows, tokens); None: this policy.
        ref: logp of the reference (rows, tokens); needed where beta > 0.
        weight: (rows, tokens), multiplies the policy term (importance correction of sampling).
        rows, tokens: counts of the whole step; by default those of this micro-batch. Where rollouts are counted, `rows`
            is their number.
        lengths: (rows,), tokens of the rollout that each row is of; by default its own.
    """
    old = logp.detach() if old is None else old
    advantage = advantage[:, None] if advantage.dim() == 1 else advantage
    # Padding may hold any number, also one whose exponential overflows: 0 * inf would poison the gradient.
    log_ratio = torch.where(mask > 0, logp - old, torch.zeros_like(logp))
    ratio = compute_ratio(log_ratio, mask, objective.ratio)
    loss = _surrogate(ratio, logp, advantage, objective)
    if weight is not None:
        loss = loss * weight
    figures = {"clipped": float(_mean(_is_clipped(ratio, advantage, objective), mask))}
    if objective.beta and objective.kl_place == "loss":
        if ref is None:
            raise ValueError("beta > 0 needs the reference's log-probabilities")
        kl = divergence(torch.where(mask > 0, logp, ref), ref, objective.kl)
        figures["kl"] = float(_mean(kl, mask))
        loss = loss + objective.beta * kl
    rows = logp.shape[0] if rows is None else rows
    tokens = float(mask.sum()) if tokens is None else tokens
    loss = torch.where(mask > 0, loss, torch.zeros_like(logp))
    if objective.aggregate == "sequence":
        if lengths is None or objective.ratio == "trajectory":  # one decision a row: those of a rollout add up
            lengths = mask.sum(-1)
        total = (loss.sum(-1) / lengths.clamp(min=1.0)).sum() / max(rows, 1)
    elif objective.aggregate == "token":
        total = loss.sum() / max(tokens, 1.0)
    else:
        total = loss.sum() / max(rows * objective.max_tokens, 1)
    return total, figures


def divergence(logp: Tensor, ref: Tensor, form: str) -> Tensor:
    """Estimates of KL(policy || reference) from one draw (Schulman's k1, k2, k3)."""
    log_ratio = ref - logp
    if form == "k1":
        return -log_ratio
    if form == "k2":
        return 0.5 * log_ratio * log_ratio
    return torch.exp(log_ratio) - log_ratio - 1.0


def compute_ratio(log_ratio: Tensor, mask: Tensor, of: RatioOf) -> Tensor:
    """exp(log_ratio), which is 0 on masked tokens: (rows, tokens), or (rows, 1) where a row has one ratio."""
    if of == "token":
        return torch.exp(log_ratio)
    total = log_ratio.sum(-1, keepdim=True)
    if of == "sequence":
        total = total / mask.sum(-1, keepdim=True).clamp(min=1.0)
    return torch.exp(total)


def _surrogate(ratio: Tensor, logp: Tensor, advantage: Tensor, objective: Objective) -> Tensor:
    if objective.surrogate == "cispo":
        return -ratio.clamp(max=objective.clip_high).detach() * advantage * logp
    if objective.surrogate == "likelihood":
        return -advantage * logp
    if objective.surrogate == "pairs":
        raise ValueError("pairs need whole groups: use a loss over pairs")
    clipped = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high)
    return -torch.min(ratio * advantage, clipped * advantage)


def _is_clipped(ratio: Tensor, advantage: Tensor, objective: Objective) -> Tensor:
    if objective.surrogate == "cispo":
        return ((ratio > objective.clip_high) & (advantage > 0)).float()
    low = (ratio < 1 - objective.clip_low) & (advantage < 0)
    return (low | ((ratio > 1 + objective.clip_high) & (advantage > 0))).float()


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values.detach() * mask).sum() / mask.sum().clamp(min=1.0)


@dataclass(frozen=True)
class Pairs:
    """A micro-batch of whole groups, whose rollouts are compared with each other.

    logp, mask, old, ref: as for `policy_loss`. rewards, groups: of the rows; in each group rollouts with more are
    preferred to those with less. count, tokens: pairs and tokens of the whole step; a count of 0 takes those found
    here. rollouts: of the rows; rows of one rollout are compared as one. Without them each row is a rollout. best:
    whether each row is of a rollout that no other can surpass.
    """

    logp: Tensor
    mask: Tensor
    old: Tensor
    ref: Tensor | None
    rewards: Sequence[float]
    groups: Sequence[Hashable]
    count: int
    tokens: float
    rollouts: Sequence[Hashable] = ()
    best: Sequence[bool] = ()

    @cached_property
    def members(self) -> list[list[int]]:
        """The rows of each rollout, in the order of its first row."""
        return group_rows(self.rewards, self.groups, self.rollouts)

    def found(self) -> list[tuple[int, int]]:
        """(better, worse) for all rollouts of one group with different rewards, as indices into `members`."""
        first = [rows[0] for rows in self.members]
        return find_pairs([self.rewards[i] for i in first], [self.groups[i] for i in first])

    def sums(self, values: Tensor) -> Tensor:
        """The sum of values (rows, tokens) over all tokens of each rollout: (rollouts,)."""
        by_row = torch.where(self.mask > 0, values, torch.zeros_like(values)).sum(-1)
        return torch.stack([by_row[rows].sum() for rows in self.members])

    def means(self, values: Tensor) -> Tensor:
        """The mean of values (rows, tokens) over all tokens of each rollout: (rollouts,)."""
        return self.sums(values) / self.sums(torch.ones_like(values)).clamp(min=1.0)


def group_rows(
    rewards: Sequence[float], groups: Sequence[Hashable], rollouts: Sequence[Hashable] = ()
) -> list[list[int]]:
    """The rows of each rollout. A rollout has one reward: rows with different ones are not of the same."""
    found = dict[Hashable, list[int]]()
    for i, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        found.setdefault((group, rollouts[i], reward) if rollouts else i, []).append(i)
    return list(found.values())


def preference_loss(pairs: Pairs, beta: float) -> tuple[Tensor, dict[str, float]]:
    """The loss of DPO (arXiv 2305.18290), and figures about it: every rollout should gain more on the reference than
    each worse one of its group. beta: temperature of the preference."""
    assert pairs.ref is not None
    gained = pairs.sums(pairs.logp - pairs.ref)
    terms = [beta * (gained[i] - gained[j]) for i, j in pairs.found()]
    if not terms:
        return 0.0 * gained.sum(), {"pairs": 0.0}
    return -F.logsigmoid(torch.stack(terms)).sum() / (pairs.count or len(terms)), {"pairs": float(len(terms))}


def find_pairs(rewards: Sequence[float], groups: Sequence[Hashable]) -> list[tuple[int, int]]:
    """(better, worse) for all pairs within one group with different rewards."""
    n = range(len(rewards))
    return [(i, j) for i in n for j in n if groups[i] == groups[j] and rewards[i] > rewards[j]]

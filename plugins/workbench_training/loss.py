"""The policy loss: a pure function of log-probabilities, advantages, a mask and an objective.

All sums over a step are divided by the counts of the whole step, which the caller passes: so the gradient does not
depend on how the step is split into micro-batches, in which order rows come, or how wide they are padded.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence

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
    max_tokens: int | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a micro-batch, and figures about it. Raises ValueError without a `ref` that the objective needs.

    Args:
        logp: log-probabilities (rows, tokens) with gradient.
        advantage: (rows,) or (rows, tokens).
        mask: (rows, tokens), 1.0 on tokens that the policy sampled.
        old: logp of the policy that sampled them (rows, tokens); None: this policy.
        ref: logp of the reference (rows, tokens); needed where beta > 0.
        weight: (rows, tokens), multiplies the policy term (importance correction of sampling).
        rows, tokens: counts of the whole step; by default those of this micro-batch.
        max_tokens: for the aggregate `constant`; by default the width.
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
        if objective.kl_corrected:
            kl = kl * ratio
        figures["kl"] = float(_mean(kl, mask))
        loss = loss + objective.beta * kl
    rows = logp.shape[0] if rows is None else rows
    tokens = float(mask.sum()) if tokens is None else tokens
    loss = torch.where(mask > 0, loss, torch.zeros_like(logp))
    if objective.aggregate == "sequence":
        total = (loss.sum(-1) / mask.sum(-1).clamp(min=1.0)).sum() / max(rows, 1)
    elif objective.aggregate == "token":
        total = loss.sum() / max(tokens, 1.0)
    elif objective.aggregate == "constant":
        total = loss.sum() / max(rows * (max_tokens or logp.shape[1]), 1)
    else:
        total = loss.sum() / mask.sum().clamp(min=1.0)
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
    if objective.surrogate == "sapo":
        up, down = objective.sapo_temperatures
        temperature = torch.where(advantage > 0, up, down)
        return -torch.sigmoid(temperature * (ratio - 1)) * 4 / temperature * advantage
    if objective.surrogate == "likelihood":
        return -advantage * logp
    if objective.surrogate in ("pairs", "pairwise"):
        raise ValueError("pairs need whole groups: use preference_loss or pairwise_loss")
    clipped = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high)
    if objective.delta is not None:
        ratio = ratio.clamp(max=objective.delta)
    return -torch.min(ratio * advantage, clipped * advantage)


def _is_clipped(ratio: Tensor, advantage: Tensor, objective: Objective) -> Tensor:
    if objective.surrogate == "cispo":
        return ((ratio > objective.clip_high) & (advantage > 0)).float()
    low = (ratio < 1 - objective.clip_low) & (advantage < 0)
    return (low | ((ratio > 1 + objective.clip_high) & (advantage > 0))).float()


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values.detach() * mask).sum() / mask.sum().clamp(min=1.0)


def preference_loss(
    logp: Tensor,
    ref: Tensor,
    mask: Tensor,
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    objective: Objective,
    *,
    old: Tensor | None = None,
    pairs: int | None = None,
    tokens: float | None = None,
    best: float = 1.0,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of TRPA (arXiv 2504.04524, as in the authors' code) and of DPO (arXiv 2305.18290), its case without
    mean, weights and trust term: every answer should gain more on the reference than each worse answer of its group.

    The row with the higher reward is preferred; pairs won by an answer with the reward `best` have a higher weight.
    pairs, tokens: counts of the whole step.

    Departure: where a group holds no pair, the authors' code pushes its answers up or down by their own level. Here
    such a group gives nothing, as in the other algorithms.
    """
    old = logp.detach() if old is None else old
    gained = ((logp - ref) * mask).sum(-1)
    if objective.pair_mean:
        gained = gained / mask.sum(-1).clamp(min=1.0)
    terms = [
        (objective.pair_best if rewards[i] >= best else 1.0) * objective.pair_beta * (gained[i] - gained[j])
        for i, j in find_pairs(rewards, groups)
    ]
    moved = divergence(torch.where(mask > 0, logp, old), old, "k3")
    tokens = float(mask.sum()) if tokens is None else tokens
    trust = (moved * mask).sum() / max(tokens, 1.0)
    if not terms:
        return objective.pair_trust * trust, {"pairs": 0.0}
    h = torch.stack(terms)
    return -F.logsigmoid(h).sum() / (pairs or len(terms)) + objective.pair_trust * trust, {"pairs": float(len(terms))}


def find_pairs(rewards: Sequence[float], groups: Sequence[Hashable]) -> list[tuple[int, int]]:
    """(better, worse) for all rows of one group with different rewards."""
    n = range(len(rewards))
    return [(i, j) for i in n for j in n if groups[i] == groups[j] and rewards[i] > rewards[j]]


def pairwise_loss(
    logp: Tensor,
    reward: Tensor,
    mask: Tensor,
    answers: Sequence[tuple[Hashable, Hashable]],
    objective: Objective,
    *,
    old: Tensor | None = None,
    count: int | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """P3O: the policy gradient of the difference of two answers' rewards (arXiv 2310.00212).

    logp, mask, old: as for `policy_loss`. reward: (rows,), the reward of the row's whole answer less its divergence
    from the reference. answers: (group, answer) of each row, see `advantages.group_answers`; rows of one answer are one
    decision, with one ratio rho. count: answers of the whole step.

    Read: the gradient E rho_1 rho_2 (r_1 - r_2) grad log(pi(y_1) / pi(y_2)) / 2 (Theorem 1), and that both the
    importance ratio and the gradient are clipped, for the two answers separately (V1) or jointly (V2; section 4.2).
    Ours, since the formulas of section 4.2 could not be read: the ratio counts without gradient and is kept within [1 -
    clip_low, 1 + clip_high]; the log-ratio d that it multiplies enters as min(D d, D clip(d, -clip_low, clip_high)), D
    being the difference of rewards. Jointly, d is that of the better answer less that of the worse, and the ratio is
    rho_1 rho_2; separately, each answer has its own d, and each rho is kept within the band by itself. Ours, too, is
    the mean over all pairs of a group, in which each answer of the step weighs the same: at the first update the
    gradient is that of `rloo`.
    """
    old = logp.detach() if old is None else old
    names: dict[Hashable, int] = {}
    which = [names.setdefault(name, len(names)) for _, name in answers]
    of_rows = torch.where(mask > 0, logp - old, torch.zeros_like(logp)).sum(-1)
    log_ratio = logp.new_zeros(len(names)).index_add(0, torch.tensor(which, device=logp.device), of_rows)
    group_of = {number: group for number, (group, _) in zip(which, answers, strict=True)}
    worth = dict(zip(which, reward.tolist(), strict=True))
    pairs = [
        (i, j) if worth[i] >= worth[j] else (j, i)
        for i, j in itertools.combinations(group_of, 2)
        if group_of[i] is not None and group_of[i] == group_of[j]
    ]
    if not pairs:
        return 0.0 * log_ratio.sum(), {"pairs": 0.0, "clipped": 0.0}
    sizes = Counter(group for group in group_of.values() if group is not None)
    each = [2.0 / (sizes[group_of[i]] - 1) for i, _ in pairs]
    good, bad = (log_ratio[list(side)] for side in zip(*pairs, strict=True))
    margin = logp.new_tensor([worth[i] - worth[j] for i, j in pairs])
    low, high = objective.clip_low, objective.clip_high
    if objective.pair_clip == "joint":
        ratio = (good + bad).exp().clamp(1 - low, 1 + high)
        gained = _pessimistic(margin, good - bad, objective)
        clipped = good - bad > high
    else:
        ratio = good.exp().clamp(1 - low, 1 + high) * bad.exp().clamp(1 - low, 1 + high)
        gained = _pessimistic(margin, good, objective) + _pessimistic(-margin, bad, objective)
        clipped = (good > high) | (bad < -low)
    total = (logp.new_tensor(each) * ratio.detach() * gained / 2).sum() / max(count or sizes.total(), 1)
    return -total, {"pairs": float(len(pairs)), "clipped": float(clipped.float().mean())}


def _pessimistic(margin: Tensor, log_ratio: Tensor, objective: Objective) -> Tensor:
    return torch.min(margin * log_ratio, margin * log_ratio.clamp(-objective.clip_low, objective.clip_high))

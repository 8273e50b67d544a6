"""Odds-ratio preference optimization: the likelihood of the better answer, and its odds against the worse one's.

Source: ORPO (Hong et al., arXiv 2403.07691), as in TRL 1.16's ORPOTrainer: the mean negative log-likelihood of the
better answer, plus `pair_beta` times -log sigmoid of the difference of log odds, the probability of an answer being the
geometric mean of its tokens'. No reference is needed. It is the first stage of PRefLexOR (arXiv 2410.12375).
Departures: each pair has the same weight, where TRL's likelihood weighs tokens of the batch alike and counts those of
the prompt.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
import torch.nn.functional as F

from workbench_training.loss import find_pairs

#: The largest mean log-probability of an answer: at 0 its odds are infinite.
_MOST = -1e-6


def odds_ratio_loss(
    logp: torch.Tensor,
    mask: torch.Tensor,
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    *,
    weight: float,
    pairs: int | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """(loss, figures) of a micro-batch.

    Args:
        logp: log-probabilities (rows, tokens) with gradient.
        mask: (rows, tokens), 1.0 on tokens that count.
        rewards: of the rows; in each group those with more are preferred to those with less.
        groups: of the rows.
        weight: of the odds ratio.
        pairs: count of the whole step.
    """
    found = find_pairs(rewards, groups)
    mean = torch.where(mask > 0, logp, torch.zeros_like(logp)).sum(-1) / mask.sum(-1).clamp(min=1.0)
    if not found:
        return 0.0 * mean.sum(), {"pairs": 0.0}
    better, worse = (mean[list(side)] for side in zip(*found, strict=True))
    margin = log_odds(better) - log_odds(worse)
    loss = (-better - weight * F.logsigmoid(margin)).sum() / (pairs or len(found))
    return loss, {"pairs": float(len(found))}


def log_odds(logp: torch.Tensor) -> torch.Tensor:
    """log p / (1 - p) of a log-probability."""
    logp = logp.clamp(max=_MOST)
    return logp - torch.log(-torch.expm1(logp))

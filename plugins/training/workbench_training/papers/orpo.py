"""ORPO: the likelihood of the better answer, and its odds against the worse one's (Hong et al., arXiv 2403.07691).

Read: TRL 1.16's ORPOTrainer, with which loss and gradient are compared in tests: the mean negative log-likelihood of
the better answer, plus `pair_beta` times -log sigmoid of the difference of log odds, the probability of an answer being
the geometric mean of its tokens'. No reference is needed. It is the first stage of PRefLexOR (arXiv 2410.12375).
Departure: each pair has the same weight, where TRL's likelihood weighs tokens of the batch alike and counts those of
the prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench_training.extension import PairLoss, Paper

if TYPE_CHECKING:
    import torch

    from workbench_training.loss import Pairs

#: The largest mean log-probability of an answer: at 0 its odds are infinite.
_MAX = -1e-6


def odds_ratio_loss(pairs: Pairs, weight: float) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss of a micro-batch, and figures about it. weight: of the odds ratio."""
    import torch.nn.functional as F

    found, mean = pairs.found(), pairs.means(pairs.logp)
    if not found:
        return 0.0 * mean.sum(), {"pairs": 0.0}
    better, worse = (mean[list(side)] for side in zip(*found, strict=True))
    margin = log_odds(better) - log_odds(worse)
    loss = (-better - weight * F.logsigmoid(margin)).sum() / (pairs.count or len(found))
    return loss, {"pairs": float(len(found))}


def log_odds(logp: torch.Tensor) -> torch.Tensor:
    """log p / (1 - p) of a log-probability."""
    import torch

    logp = logp.clamp(max=_MAX)
    return logp - torch.log(-torch.expm1(logp))


PAPER = Paper(pair_losses={"odds_ratio": PairLoss(f"{__name__}:odds_ratio_loss", reads_reference=False)})

"""P3O: the policy gradient of the difference of two answers' rewards (Wu et al., arXiv 2310.00212).

Read, in a digest of the paper and its authors' post: the reward of an answer less `pair_beta` times the log-ratio of
the whole answer to the reference; the gradient of a pair, half the difference D of these rewards times both ratios
times the gradient of the difference of the two log-probabilities (Theorem 1); that ratio and gradient are clipped, for
the two answers jointly in the more stable variant (V2, section 4.2). So a shift of all rewards of a prompt changes
nothing.

Departures: the formula of the clip could not be read, so its form is ours. The product of the ratios counts without
gradient, within 1 - CLIP and 1 + CLIP; the log-ratio d of the better answer less that of the worse enters as min(D d, D
clip(d, -CLIP, CLIP)). The paper draws two answers; here all pairs of a group with different rewards are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench_training.extension import PairLoss, Paper, Preset

if TYPE_CHECKING:
    import torch

    from workbench_training.loss import Pairs

#: How far the ratio and the log-ratio of a pair may go. Ours.
CLIP = 0.2


def pairwise_loss(pairs: Pairs, weight: float) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss of a micro-batch, and figures about it. weight: of the divergence in an answer's reward."""
    import torch

    assert pairs.ref is not None
    moved, found = pairs.sums(pairs.logp - pairs.old), pairs.found()
    if not found:
        return 0.0 * moved.sum(), {"pairs": 0.0, "clipped": 0.0}
    rewards = moved.new_tensor([pairs.rewards[rows[0]] for rows in pairs.members])
    worth = rewards - weight * pairs.sums(pairs.old - pairs.ref).detach()
    better, worse = (list(side) for side in zip(*found, strict=True))
    margin, gap = worth[better] - worth[worse], moved[better] - moved[worse]
    ratio = (moved[better] + moved[worse]).detach().exp().clamp(1 - CLIP, 1 + CLIP)
    bounded = gap.clamp(-CLIP, CLIP)
    gained = ratio * torch.min(margin * gap, margin * bounded) / 2
    clipped = (margin * gap > margin * bounded).float().mean()
    return -gained.sum() / (pairs.count or len(found)), {"pairs": float(len(found)), "clipped": float(clipped)}


PAPER = Paper(
    presets={
        "p3o": Preset(
            {"surrogate": "pairs", "pair_loss": "p3o", "pair_beta": 0.05, "beta": 0.05},
            source="arXiv 2310.00212; the form of the clip, and 0.05 as in rloo, are ours",
        )
    },
    pair_losses={"p3o": PairLoss(f"{__name__}:pairwise_loss")},
)

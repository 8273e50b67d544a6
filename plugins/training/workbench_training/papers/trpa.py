"""TRPA: trust region preference approximation (Su et al., arXiv 2504.04524).

Read: the authors' repository (github.com/XueruiSu/Trust-Region-Preference-Approximation at f372585,
`compute_pairwise_policy_loss`). As there: each better answer of a group against each worse one; the gain of an answer
is the mean of its tokens' log-ratios to the reference; pairs that a best answer wins weigh 2.5 times as much; the KL to
the policy that drew is added at 0.001. Departure: where a group holds no pair, their code pushes its answers up or down
by their own level. Here such a group gives nothing, as in the other algorithms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench_training.extension import PairLoss, Paper, Preset
from workbench_training.objective import BEST

if TYPE_CHECKING:
    import torch

    from workbench_training.loss import Pairs

#: The weight of a pair that a best answer wins (`anisotropy`).
BEST_WEIGHT = 2.5
#: The weight of the divergence from the policy that drew.
TRUST = 0.001


def trust_region_loss(pairs: Pairs, beta: float) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss of a micro-batch, and figures about it. beta: temperature of the preference."""
    import torch
    import torch.nn.functional as F

    from workbench_training.loss import divergence

    assert pairs.ref is not None
    gained = pairs.means(pairs.logp - pairs.ref)
    best = [pairs.best[rows[0]] if pairs.best else pairs.rewards[rows[0]] >= BEST for rows in pairs.members]
    terms = [(BEST_WEIGHT if best[i] else 1.0) * beta * (gained[i] - gained[j]) for i, j in pairs.found()]
    moved = divergence(torch.where(pairs.mask > 0, pairs.logp, pairs.old), pairs.old, "k3")
    trust = TRUST * (moved * pairs.mask).sum() / max(pairs.tokens, 1.0)
    if not terms:
        return trust, {"pairs": 0.0}
    return -F.logsigmoid(torch.stack(terms)).sum() / (pairs.count or len(terms)) + trust, {"pairs": float(len(terms))}


PAPER = Paper(
    presets={
        "trpa": Preset(
            {"surrogate": "pairs", "pair_loss": "trpa", "beta": 1e-3},
            source="arXiv 2504.04524, as in its authors' repository at f372585",
        )
    },
    pair_losses={"trpa": PairLoss(f"{__name__}:trust_region_loss")},
)

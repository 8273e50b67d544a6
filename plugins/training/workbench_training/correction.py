"""Correction of sampling: the weight of tokens that the sampler and the trainer hold for differently likely.

Rows are drawn by one implementation (a vLLM server, the cached generator of this process) and learned from by
another. With equal weights the two still round differently, and a server may lag behind; the gradient is then an
estimate under another policy than the one that drew. Truncated importance weights trainer / sampler correct it (Yao et
al., "Your efficient RL framework secretly brings you off-policy RL training", 2025; TRL 1.16's
`vllm_importance_sampling_mode`), and rows whose ratio as a whole is out of bounds are left out (masked importance
sampling; Liu et al., "When speed kills stability", 2025).

Weights are those at the start of a step, without gradient. They multiply the policy term alone, not the divergence
from the reference, and rows that are left out stay in the divisors, both as in TRL. Where sampler and trainer agree to
the last bit every weight is exactly 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from workbench_training.loss import compute_ratio
from workbench_training.objective import Objective
from workbench_training.settings import Learning

Tensor = torch.Tensor
#: The largest weight of a token, as in TRL's `token_truncate`. Rows are left out whose mean ratio (geometric, over
#: their tokens) is outside the bounds: the product of a long row leaves any bounds by rounding alone. Ours.
CAP, LOW, HIGH = 2.0, 0.5, 2.0
MAX = 50.0  # log-ratios are reported up to this, beyond which their exponentials overflow


def is_corrected(objective: Objective, learning: Learning) -> bool:
    """False where the loss has no policy ratio to correct, and at another temperature than 1, since samplers report
    log-probabilities at 1."""
    return objective.is_corrected and learning.temperature == 1.0


def compute_log_ratio(before: Tensor, sampled: Tensor, mask: Tensor) -> Tensor:
    """log(trainer / sampler) of each token (rows, tokens); 0 on masked tokens, and where the sampler gave no number."""
    known = (mask > 0) & torch.isfinite(sampled)
    return torch.where(known, before - sampled, torch.zeros_like(before)).detach()


def weigh_tokens(log_ratio: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weight of each token (rows, tokens), which ratios were truncated, and which rows (rows,) were left out."""
    ratio = compute_ratio(log_ratio, mask, "token").expand_as(mask)
    truncated = (ratio > CAP) & (mask > 0)
    whole = compute_ratio(log_ratio, mask, "sequence")[:, 0]
    left_out = (whole < LOW) | (whole > HIGH)
    return torch.where(left_out[:, None], torch.zeros_like(ratio), ratio.clamp(max=CAP)), truncated, left_out


def measure_gap(log_ratios: Any) -> tuple[float, float]:
    """(mean |log-ratio|, mean of k3, which estimates KL(sampler || trainer)) of tokens; zeros where there are none."""
    found = np.clip(np.asarray(log_ratios, np.float64), -MAX, MAX)
    return (float(np.abs(found).mean()), float((np.expm1(found) - found).mean())) if len(found) else (0.0, 0.0)


@dataclass
class Drift:
    """The distance of sampler and trainer on the rows of a step that the current version drew."""

    log_ratios: list[Any] = field(default_factory=list)  # of tokens, as arrays
    truncated: int = 0  # tokens
    left_out: int = 0  # rows
    rows: int = 0

    def add(self, log_ratio: Tensor, mask: Tensor, fresh: Tensor, corrected: bool) -> None:
        """Note some rows. fresh: (rows,), those that the current version drew."""
        counted = (mask > 0) & fresh[:, None]
        self.log_ratios.append(log_ratio[counted].double().cpu().numpy())
        self.rows += int(fresh.sum())
        if corrected:
            _, truncated, left_out = weigh_tokens(log_ratio, mask)
            self.truncated += int((truncated & counted).sum())
            self.left_out += int((left_out & fresh).sum())

    def merge(self, other: Drift) -> None:
        self.log_ratios += other.log_ratios
        self.truncated += other.truncated
        self.left_out += other.left_out
        self.rows += other.rows

    def figures(self) -> dict[str, float]:
        """Over tokens the mean |log-ratio| (`off_policy_gap`), the mean of k3, which estimates KL(sampler || trainer),
        and the mean, 99th percentile and maximum of the ratio; the shares of tokens truncated and of rows left out."""
        found = np.clip(np.concatenate([*self.log_ratios, np.zeros(0)]), -MAX, MAX)
        if not len(found):
            return {}
        (gap, kl), ratio = measure_gap(found), np.exp(found)
        return {
            "off_policy_gap": gap,
            "off_policy_kl": kl,
            "off_policy_ratio_mean": float(ratio.mean()),
            "off_policy_ratio_p99": float(np.quantile(ratio, 0.99)),
            "off_policy_ratio_max": float(ratio.max()),
            "off_policy_truncated": self.truncated / len(found),
            "off_policy_masked": self.left_out / max(1, self.rows),
        }


def gather_drift(drift: Drift, processes: int) -> Drift:
    """The drift of the rows of all processes, which must all call this."""
    if processes == 1:
        return drift
    parts: list[Any] = [None] * processes
    dist.all_gather_object(parts, drift)
    total = Drift()
    for part in parts:
        total.merge(part)
    return total

"""Our advantages and rewards by verl's names, for a folder of `workbench export --format verl` on the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench_training.advantages import compute_advantages
from workbench_training.objective import Objective
from workbench_training.rewards import Guard, check_guards, tool_n1
from workbench_training.rollouts.token_rows import Row


def advantages_for(
    token_level_rewards: Any,
    response_mask: Any,
    index: Sequence[Any],
    objective: Mapping[str, Any],
    guards: Sequence[Guard],
    longest: int,
) -> tuple[Any, Any]:
    """(advantages, returns), each (rows, tokens): one number a row on the tokens of its mask, as verl wants it.

    token_level_rewards, response_mask: (rows, tokens). index: rows with equal values answer one prompt. longest: tokens
    of the longest answer. Departure: why an answer ended is not reported here, so one that takes all tokens counts as
    cut, also where the last of them is its end.
    """
    import torch

    scores = token_level_rewards.sum(-1).tolist()
    cut = (response_mask.sum(-1) >= longest).tolist()
    earned = [_cut(s, guards) if c else s for s, c in zip(scores, cut, strict=True)]
    rows = [Row((), (), (), (), e, str(i), n) for n, (e, i) in enumerate(zip(earned, index, strict=True))]
    found = torch.as_tensor(
        compute_advantages(rows, Objective.model_validate(dict(objective))), dtype=token_level_rewards.dtype
    )
    spread = found.to(token_level_rewards.device)[:, None] * response_mask
    return spread, spread


def _cut(score: float, guards: Sequence[Guard]) -> float | None:
    """The reward of an answer that was cut; None: it is left out."""
    if "mask_truncated" in guards:
        return None
    return min(score, 0.0) if "truncated" in guards else score


def score_of(
    answer: str, truths: Mapping[str, str], rewards: Sequence[Mapping[str, Any]], guards: Sequence[Guard]
) -> float:
    """The weighted sum of the parts that need nothing but the answer, and at most 0 where a guard finds it empty or
    repetitive. truths: what is right, by the parts' targets. Raises ValueError for other parts."""
    total = 0.0
    for part in rewards:
        truth = truths[part["target"]]
        if part["kind"] == "tool_n1":
            total += part["weight"] * tool_n1(answer, truth)
        elif part["kind"] == "exact_match":
            total += part["weight"] * float(answer.strip() == truth.strip())
        else:
            raise ValueError(f"the reward {part['kind']} is not known on a cluster: write compute_score yourself")
    return min(total, 0.0) if check_guards(answer, False, guards) else total

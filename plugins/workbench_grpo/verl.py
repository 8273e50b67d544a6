"""What a folder of `workbench export --format verl` imports on the cluster: our advantages and rewards, by verl's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench_grpo.advantages import advantages
from workbench_grpo.objective import Objective
from workbench_grpo.rewards import tool_n1
from workbench_grpo.rollouts import Row


def advantages_for(token_level_rewards: Any, response_mask: Any, index: Sequence[Any],
                   objective: Mapping[str, Any]) -> tuple[Any, Any]:  # fmt: skip
    """(advantages, returns), each (rows, tokens): one number a row on the tokens of its mask, as verl wants it.

    token_level_rewards, response_mask: (rows, tokens). index: rows with equal values answer one prompt.
    """
    import torch

    scores = token_level_rewards.sum(-1)
    rows = [
        Row((), (), (), (), float(s), str(i), n) for n, (s, i) in enumerate(zip(scores.tolist(), index, strict=True))
    ]
    found = torch.as_tensor(
        advantages(rows, Objective.model_validate(dict(objective))), dtype=token_level_rewards.dtype
    )
    spread = found.to(token_level_rewards.device)[:, None] * response_mask
    return spread, spread


def score_of(answer: str, truth: str, rewards: Sequence[Mapping[str, Any]]) -> float:
    """The weighted sum of the parts that need nothing but the answer. Raises ValueError for others."""
    total = 0.0
    for part in rewards:
        if part["kind"] == "tool_n1":
            total += part["weight"] * tool_n1(answer, truth)
        elif part["kind"] == "exact_match":
            total += part["weight"] * float(answer.strip() == truth.strip())
        else:
            raise ValueError(f"the reward {part['kind']} is not known on a cluster: write compute_score yourself")
    return total

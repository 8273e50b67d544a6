"""Advantages: how much better than its peers each row did. Pure functions of rows and an objective."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench_training.objective import Objective
from workbench_training.rollouts.token_rows import Row

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, np.dtype[np.float64]]

#: Added to deviations that advantages are divided by, as in verl; TRL has 1e-4.
EPS = 1e-6
#: Added to a multiplier at once for a mean cost one budget too high (Stooke et al., arXiv 2007.03964). Without it the
#: multiplier overshoots: the small bandit's answers went from 8 tokens past their budget of 4 to 1, without any reward.
GAIN = 1.0
#: Change of a multiplier in a step for a mean cost one budget too high. Ours.
RATE = 0.05
#: A multiplier never exceeds this, nor its sum with what the gain adds.
MAX = 5.0
#: Discount of later step rewards in GiGPO's step term, as in ROLL.
GAMMA = 0.95


def compute_advantages(
    rows: Sequence[Row], objective: Objective, multipliers: Mapping[str, float] | None = None
) -> Array:
    """The advantage of each row (float64). Rows without a finite reward get 0 and do not affect others.

    With constraints: the advantage of the reward, less that of each cost times its multiplier, divided by one plus all
    multipliers, so that growing multipliers do not enlarge the step (Moskovitz et al., arXiv 2310.04373). Departure:
    the costs' advantages are group-relative, where theirs come from value functions, which are not trained here.

    The step's own excess times `GAIN` is added to each multiplier: the proportional term of Stooke et al. (arXiv
    2007.03964). Where costs and rewards are correlated, group-relative advantages change their sign at a multiplier of
    1, however far the cost is from its budget; a multiplier with the integral term alone overshoots, and the policy
    ends without reward.
    """
    reward = np.array([_number(row.reward) for row in rows], np.float64)
    found = subtract_baseline(reward, rows, objective)
    if objective.step_weight:
        found = found + objective.step_weight * compute_step_advantages(rows)
    weights = _moved(multipliers or {}, rows, objective.constraints, GAIN)
    for name, weight in weights.items():
        if weight:
            cost = np.array([_number(row.costs.get(name)) if row.scored else math.nan for row in rows], np.float64)
            found = found - weight * subtract_baseline(cost, rows, objective)
    found = found / (1.0 + sum(weights.values()))
    return np.where(np.isfinite(reward), found, 0.0)


def subtract_baseline(values: Array, rows: Sequence[Row], objective: Objective) -> Array:
    """Values less the baseline of their group, scaled. 0 where a value is not finite or has no peers."""
    keys = [tuple(getattr(row, name) for name in objective.group) for row in rows]
    units, members = _units(values, rows, keys, objective.count)  # what counts once, and which rows it stands for
    amounts = np.array([value for _, value in units], np.float64)
    by_group: dict[Any, list[int]] = defaultdict(list)
    for unit, (key, value) in enumerate(units):
        if math.isfinite(value):
            by_group[key].append(unit)
    base, scale, counts = np.zeros(len(units)), np.ones(len(units)), np.zeros(len(units), bool)
    for group in by_group.values():
        base[group] = _baseline(amounts[group], objective)
        counts[group] = len(group) > 1
        if objective.scale == "std" and len(group) > 1:
            scale[group] = np.std(amounts[group], ddof=1) + EPS
    finite = np.isfinite(amounts)
    if objective.scale in ("batch_std", "batch_centred_std") and finite.sum() > 1:
        of = amounts if objective.scale == "batch_std" else amounts - base
        scale[:] = np.std(of[finite], ddof=1) + EPS
    found = np.zeros(len(rows))
    for unit, indices in enumerate(members):
        if counts[unit]:
            found[indices] = (values[indices] - base[unit]) / scale[unit]
    return np.where(np.isfinite(values), found, 0.0)


def _units(
    values: Array, rows: Sequence[Row], keys: Sequence[Any], count: str
) -> tuple[list[tuple[Any, float]], list[list[int]]]:
    """The units of a vote: a row, or all rows of one rollout in a group, which then vote with their mean."""
    if count == "row":
        return [(keys[i], float(values[i])) for i in range(len(rows))], [[i] for i in range(len(rows))]
    by_rollout: dict[Any, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        by_rollout[keys[i], row.task, row.rollout].append(i)
    units = []
    for (key, _, _), indices in by_rollout.items():
        finite = [float(values[i]) for i in indices if math.isfinite(values[i])]
        units.append((key, math.fsum(finite) / len(finite) if finite else math.nan))
    return units, list(by_rollout.values())


def _baseline(values: Array, objective: Objective) -> Array | float:
    n = len(values)
    if n == 1 or objective.baseline == "none":
        return 0.0
    mean = values.mean()
    return (n * mean - values) / (n - 1) if objective.baseline == "leave_one_out" else mean


def compute_step_advantages(rows: Sequence[Row]) -> Array:
    """GiGPO's step term (Feng et al., arXiv 2505.10978, section 4.2): discounted returns of steps that began in the
    same state of the same task, compared with each other. A state seen once gives 0."""
    returns = compute_step_returns(rows, GAMMA)
    by_state: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if row.anchor is not None and math.isfinite(returns[i]):
            by_state[row.task, row.anchor].append(i)
    found = np.zeros(len(rows))
    for group in by_state.values():
        if len(group) > 1:
            found[group] = returns[group] - returns[group].mean()
    return found


def compute_step_returns(rows: Sequence[Row], gamma: float) -> Array:
    """For each step the discounted reward of it and the later steps of its rollout; NaN in an unscored rollout."""
    by_rollout: dict[tuple[str, int], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        by_rollout[row.task, row.rollout].append(i)
    returns = np.zeros(len(rows))
    for indices in by_rollout.values():
        indices = sorted(indices, key=lambda i: rows[i].turn)
        later = 0.0
        for i in reversed(indices):
            row = rows[i]
            own = row.step_reward
            if own is None:
                own = _number(row.reward) if i == indices[-1] else 0.0
            later = own + gamma * later
            returns[i] = later if math.isfinite(_number(row.reward)) else math.nan
    return returns


def compute_token_advantages(
    values: torch.Tensor,
    mask: torch.Tensor,
    objective: Objective,
    old: torch.Tensor | None = None,
    ref: torch.Tensor | None = None,
    rows: Sequence[Row] = (),
) -> torch.Tensor:
    """Token advantages (rows, tokens) from row advantages (rows,).

    With the KL in the reward, each token bears the KL of itself and later tokens (arXiv 2501.03262, equation 8); where
    the whole batch is one group, the step's tokens are then whitened (equation 10). Where a row is one decision (RLOO),
    its KL is compared with that of its peers, like rewards are: TRL 1.16's RLOOTrainer subtracts it from the reward
    before the baseline.

    Args:
        mask: (rows, tokens), 1.0 on tokens to learn from, which rows without a reward have none of (`collate`).
        old, ref: log-probabilities (rows, tokens) of the policy and of the reference; needed for a KL in the reward.
        rows: the rows of the values; without them the KL of a row is subtracted as it is.

    Raises:
        ValueError: if log-probabilities are missing.
    """
    if rows:
        mask = mask * mask.new_tensor([row.scored for row in rows])[:, None]
    spread = values[:, None] * mask
    if objective.kl_place != "reward" or not objective.beta:
        return spread
    if old is None or ref is None:
        raise ValueError("a divergence in the reward needs log-probabilities of the policy and of the reference")
    log_ratio = (old - ref) * mask
    if objective.ratio == "trajectory":  # one decision a row: the row bears all of it
        return (values - objective.beta * _kl_without_baseline(log_ratio.sum(-1), rows, objective))[:, None] * mask
    spread = (spread - objective.beta * log_ratio.flip(-1).cumsum(-1).flip(-1)) * mask
    if objective.group:
        return spread
    mean = spread.sum() / mask.sum().clamp(min=1.0)
    spread_out = (((spread - mean) ** 2 * mask).sum() / (mask.sum() - 1).clamp(min=1.0)).sqrt()
    return (spread - mean) / (spread_out + 1e-8) * mask


def _kl_without_baseline(log_ratio: torch.Tensor, rows: Sequence[Row], objective: Objective) -> torch.Tensor:
    """Compute the divergence of rows, less the baseline of their peers; 0 where a row was not scored."""
    if not rows:
        return log_ratio
    scored = [row.scored for row in rows]
    known = np.where(scored, log_ratio.detach().double().cpu().numpy(), math.nan)
    return log_ratio.new_tensor(subtract_baseline(known, rows, objective.model_copy(update={"scale": "none"})))


def update_multipliers(
    multipliers: Mapping[str, float], rows: Sequence[Row], constraints: Mapping[str, float]
) -> dict[str, float]:
    """The multipliers after a step: up where the mean cost of a rollout is above its budget, down to 0 where below."""
    return _moved(multipliers, rows, constraints, RATE)


def _moved(
    multipliers: Mapping[str, float], rows: Sequence[Row], constraints: Mapping[str, float], factor: float
) -> dict[str, float]:
    """The multipliers, each moved by its excess times the factor, within 0 and `MAX`."""
    return {
        name: min(max(multipliers.get(name, 0.0) + factor * _excess(name, budget, rows), 0.0), MAX)
        for name, budget in constraints.items()
    }


def _excess(name: str, budget: float, rows: Sequence[Row]) -> float:
    """The excess of the mean cost of a rollout over its budget, in budgets; 0 where no cost is known."""
    costs = {(r.task, r.rollout): float(r.costs[name]) for r in rows if name in r.costs and r.scored}
    if not costs:
        return 0.0
    return (math.fsum(costs.values()) / len(costs) - budget) / max(abs(budget), 1e-9)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)

"""From the rollouts of a step to the rows and advantages that a learner takes: pure functions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from workbench_training.advantages import compute_advantages
from workbench_training.objective import Objective
from workbench_training.rewards import Rollout
from workbench_training.rollouts.study_rollouts import scores_differ
from workbench_training.rollouts.token_rows import Row

#: ARPO (arXiv 2505.16282), as in its authors' code: a group nearly fails below this mean score, with scores closer
#: than this (theirs: a standard deviation below 0.05); a rollout that scores more than the last is a success.
FAILED_MEAN, FAILED_SPREAD, SUCCESS = 0.2, 0.1, 0.1

#: A stored success: its rows as JSON values.
Success = list[dict[str, Any]]


def replay_success(
    group: Sequence[Rollout],
    rows: Sequence[list[Row]],
    stored: Sequence[Success],
    *,
    version: int,
    draw: str,
    most: int,
) -> tuple[list[list[Row]], list[Success]]:
    """The rows of a group's rollouts, and the successes to keep. In a group that nearly fails by the metric, a stored
    success replaces the first rollout (ARPO). Its tokens keep the log-probabilities of their sampling, so that the
    ratio corrects for their age. Rollouts without a reward neither fail nor succeed.

    Args:
        group, rows: the rollouts of a training row, and the rows of each.
        stored: earlier successes on this training row.
        version: of the weights that drew the group.
        draw: seed of the choice among successes.
        most: successes to keep.
    """
    scores, found = [score for r in group if (score := r.score) is not None], list(rows)
    failed = bool(scores) and sum(scores) / len(scores) < FAILED_MEAN and max(scores) - min(scores) < FAILED_SPREAD
    if stored and failed:
        chosen = random.Random(draw).choice(stored)
        found[0] = [Row.from_dict({**row, "rollout": group[0].replica}) for row in chosen]
    fresh = [
        [row.as_dict() for row in own]
        for rollout, own in zip(group, found, strict=True)
        if (score := rollout.score) is not None
        and score > SUCCESS
        and own
        and all(row.version == version for row in own)
    ]
    return found, [*stored, *fresh][-most:]


def describe_step(groups: Sequence[Sequence[Rollout]], rows: Sequence[Row], step: int) -> dict[str, float]:
    """Figures about the rollouts of a step.

    silent: the share of groups that the metric does not tell apart, of those with a reward. answer_tokens: of an
    answer, on average. truncated: the share of answers that were cut at max_tokens.
    """
    rollouts = [rollout for group in groups for rollout in group]
    scored = [rollout for rollout in rollouts if rollout.reward is not None]
    known = [group for group in groups if any(rollout.reward is not None for rollout in group)]
    means: dict[str, float] = {}
    if scored:  # without any there is no reward, which is not a reward of 0
        means = {"reward": _mean([one.reward for one in scored]), "score": _mean([one.score for one in scored])}
    calls = [call for rollout in rollouts for call in rollout.calls]
    answers = [call.response for call in calls if call.lm.startswith("policy:")] or [call.response for call in calls]
    return {
        "step": float(step),
        "rollouts": float(len(scored)),
        "rows": float(len(rows)),
        "unscored": float(len(rollouts) - len(scored)),
        **means,
        "silent": sum(not scores_differ(group) for group in known) / max(1, len(known)),
        "guarded": float(sum(bool(rollout.guarded) for rollout in scored)),
        "tokens": float(sum(row.drawn for row in rows)),
        "answer_tokens": sum(answer.completion_tokens for answer in answers) / max(1, len(answers)),
        "truncated": sum(answer.finish == "length" for answer in answers) / max(1, len(answers)),
    }


def describe_figures(figures: Mapping[str, float]) -> str:
    """The line about a step."""
    text = f"step {figures['step'] + 1:.0f}: "
    if "reward" in figures:
        text += f"reward {figures['reward']:.3f}, {figures['silent']:.0%} of the groups without differences"
    else:
        text += "no rewards"
    if figures["unscored"]:
        text += f", {figures['unscored']:.0f} rollouts without a reward"
    text += f"; {figures['seconds']:.1f} s, {figures['tokens_per_second']:,.0f} tokens/s"
    return f"{text}, {figures['answer_tokens']:.0f} tokens an answer, {figures['truncated']:.0%} cut at max_tokens"


def _mean(values: Sequence[float | None]) -> float:
    """Return the mean of the values that there are; 0.0 without any."""
    known = [value for value in values if value is not None]
    return sum(known) / max(1, len(known))


def find_advantages(rows: Sequence[Row], objective: Objective, multipliers: Mapping[str, float]) -> list[float] | None:
    """The advantage of each row; None where nothing can be learned from them."""
    if not rows:
        return None
    advantages = compute_advantages(rows, objective, multipliers)
    # A divergence from the reference and a critic learn also where all rollouts earned the same.
    if not (advantages.any() or objective.beta or objective.critic is not None):
        return None
    return advantages.tolist()

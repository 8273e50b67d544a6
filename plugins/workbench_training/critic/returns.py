"""Advantages and targets from values: pure functions of rewards, values and where turns end.

A trajectory is what one policy drew in one rollout, in order, whichever rows hold it: tokens of tools and users lie
between, and are no steps. Its turns are the runs of drawn tokens without others between.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench_training.rollouts.token_rows import Row

Array = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Trajectory:
    """The drawn tokens of a rollout.

    rows, places: (tokens,), the row of each token and its place after the row's prompt. ends: (tokens,), whether a turn
    ends with it. rewards: (tokens,), what was earned with it.
    """

    rows: Indices
    places: Indices
    ends: np.ndarray[Any, np.dtype[np.bool_]]
    rewards: Array


def split_trajectories(rows: Sequence[Row]) -> list[Trajectory]:
    """The trajectories of rows that were scored; rows of others are in none.

    A turn earns its row's `step_reward`. Where that is None, only the last token of the rollout earns: its reward.
    """
    by_rollout: dict[tuple[str, int], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if row.drawn and row.reward is not None and math.isfinite(row.reward):
            by_rollout[row.task, row.rollout].append(i)
    return [_join(rows, sorted(found, key=lambda i: rows[i].turn)) for found in by_rollout.values()]


def _join(rows: Sequence[Row], order: Sequence[int]) -> Trajectory:
    which, places, ends, rewards = [], [], [], []
    for i in order:
        row = rows[i]
        drawn = np.flatnonzero(row.mask)
        last = np.append(np.diff(drawn) > 1, True)
        earned = np.zeros(len(drawn))
        if row.step_reward is not None:
            earned[-1] = row.step_reward
        elif i == order[-1]:
            earned[-1] = row.reward
        which.append(np.full(len(drawn), i))
        places.append(drawn)
        ends.append(last)
        rewards.append(earned)
    return Trajectory(*(np.concatenate(parts) for parts in (which, places, ends, rewards)))


def compute_gae(
    rewards: Array, values: Array, ends: np.ndarray[Any, np.dtype[np.bool_]], *, gamma: float, within: float, lam: float
) -> tuple[Array, Array]:
    """(advantages, returns) of a trajectory's tokens, by generalized advantage estimation (Schulman et al., arXiv
    1506.02438).

    Args:
        rewards, values: (tokens,); values are those of the states before the tokens.
        ends: (tokens,), whether a turn ends with the token.
        gamma: discount from a turn to the next.
        within: discount from a token to the next of its turn. With 1, as in POAD (Wen et al., arXiv 2405.15821), how
            long a turn is does not change what it is worth; with `gamma` it is PPO over tokens.
        lam: decay of the estimate over tokens; at the end of a turn it is multiplied by gamma, too.
    """
    advantages, later, following = np.zeros(len(values)), 0.0, 0.0
    for t in reversed(range(len(values))):
        discount = gamma if ends[t] else within
        error = rewards[t] + discount * following - values[t]
        later = advantages[t] = error + discount * lam * later
        following = values[t]
    return advantages, advantages + values


def split_turns(trajectory: Trajectory) -> list[tuple[int, int]]:
    """(first, last) index of the tokens of each turn."""
    last = np.flatnonzero(trajectory.ends)
    first = np.append(0, last[:-1] + 1)
    return list(zip(first.tolist(), last.tolist(), strict=True))


def compute_turn_targets(rewards: Array, following: Array, gamma: float) -> Array:
    """What the value of (state, turn) should be: the turn's reward and the discounted value of the next state (Zhou et
    al., arXiv 2402.19446, section 3.1). following: (turns,), values of the states after the turns, 0 after the last."""
    return rewards + gamma * following


def normalise(values: Array, eps: float = 1e-8) -> Array:
    """Values with mean 0 and deviation 1; unchanged where there is only one."""
    return (values - values.mean()) / (values.std() + eps) if len(values) > 1 else values

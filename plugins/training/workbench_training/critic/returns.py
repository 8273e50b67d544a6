"""Advantages and targets from values: pure functions of rewards, values and where turns end.

A trajectory is what one agent drew in one rollout, in order, whichever rows hold it: tokens of tools and users lie
between, and are no steps. Its turns are the runs of drawn tokens without others between. In a rollout whose steps earn,
all agents share one trajectory.
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

    A turn earns its row's `step_reward`. In a rollout without any, an agent's last token earns its reward.
    """
    stepped = {_rollout_of(row) for row in rows if row.step_reward is not None}
    members: dict[tuple[Any, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if row.drawn and row.reward is not None and math.isfinite(row.reward):
            rollout = _rollout_of(row)
            members[rollout, "" if rollout in stepped else row.agent].append(i)
    return [
        _join(rows, sorted(mine, key=lambda i: rows[i].turn), rollout in stepped)
        for (rollout, _), mine in members.items()
    ]


def _rollout_of(row: Row) -> tuple[str, int, int]:
    return row.task, row.rollout, row.version


def _join(rows: Sequence[Row], order: Sequence[int], stepped: bool) -> Trajectory:
    which, places, ends, rewards = [], [], [], []
    for i in order:
        row = rows[i]
        drawn = np.flatnonzero(row.mask)
        earned = np.zeros(len(drawn))
        if stepped:
            earned[-1] = row.step_reward or 0.0
        elif i == order[-1]:
            earned[-1] = row.reward
        which.append(np.full(len(drawn), i))
        places.append(drawn)
        ends.append(np.append(np.diff(drawn) > 1, True))
        rewards.append(earned)
    return Trajectory(*(np.concatenate(parts) for parts in (which, places, ends, rewards)))


def compute_gae(
    rewards: Array, values: Array, ends: np.ndarray[Any, np.dtype[np.bool_]], *, gamma: float, lam: float
) -> tuple[Array, Array]:
    """(advantages, returns) of a trajectory's tokens, by generalized advantage estimation (Schulman et al., arXiv
    1506.02438).

    Args:
        rewards, values: (tokens,); values are those of the states before the tokens.
        ends: (tokens,), whether a turn ends with the token.
        gamma: discount from a turn to the next. Tokens of one turn are not discounted, so that its length does not
            change what it is worth.
        lam: decay of the estimate over tokens; at the end of a turn it is multiplied by gamma, too.
    """
    advantages, later, following = np.zeros(len(values)), 0.0, 0.0
    for t in reversed(range(len(values))):
        discount = gamma if ends[t] else 1.0
        error = rewards[t] + discount * following - values[t]
        later = advantages[t] = error + discount * lam * later
        following = values[t]
    return advantages, advantages + values


@dataclass(frozen=True)
class Turns:
    """The turns of trajectories, one trajectory after the other.

    starts, ends: (rows, places) of the states before the turns and after them. rewards: (turns,), what was earned with
    each. final: (turns,), whether its trajectory ends with it. lengths: (turns,), in tokens.
    """

    starts: tuple[Indices, Indices]
    ends: tuple[Indices, Indices]
    rewards: Array
    final: np.ndarray[Any, np.dtype[np.bool_]]
    lengths: Indices


def gather_turns(trajectories: Sequence[Trajectory]) -> Turns:
    """The turns of trajectories. Raises ValueError without any."""
    rows, places, ends, rewards = (
        np.concatenate([getattr(t, name) for t in trajectories]) for name in ("rows", "places", "ends", "rewards")
    )
    last = np.flatnonzero(ends)
    first = np.append(0, last[:-1] + 1)
    finals = np.cumsum([len(t.rows) for t in trajectories]) - 1
    return Turns(
        starts=(rows[first], places[first]),
        ends=(rows[last], places[last] + 1),
        rewards=np.add.reduceat(rewards, first),
        final=np.isin(last, finals),
        lengths=last - first + 1,
    )


def normalise(values: Array, eps: float = 1e-8) -> Array:
    """Values with mean 0 and deviation 1; unchanged where there is only one."""
    return (values - values.mean()) / (values.std() + eps) if len(values) > 1 else values

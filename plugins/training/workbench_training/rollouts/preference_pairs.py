"""Pairs of rollouts of which one is preferred.

A preference is between answers to one question. Two rollouts that begin with the same prompt are compared as a whole:
the sum of the log-probabilities of all rows of one against the sum of the other's, in which what tools and users said
cancels (Rafailov et al., "From r to Q*", arXiv 2404.12358). Rollouts that begin differently are compared in the prompts
that both were given. Where they have none in common they are no pair. Two of the same tokens are none either,
whatever they earned: what is compared cancels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from workbench_training.rollouts.token_rows import RolloutRows, Row

State = tuple[str, tuple[int, ...]]


def pair_rollouts(better: RolloutRows, worse: RolloutRows, name: str) -> list[RolloutRows]:
    """The sides of each comparison of two rollouts, the better one first; none where they share no prompt or have the
    same tokens.

    name: the task that both sides of the first comparison get, so that they and no others are compared.
    """
    if not better.drawn or not worse.drawn:
        return []
    if better.turns[0] == worse.turns[0]:
        return _compare(better, better.rows, worse, worse.rows, name)
    asked = defaultdict[State, list[Row]](list)
    for row in worse.rows:
        asked[row.agent, row.prompt_ids].append(row)
    found = list[RolloutRows]()
    for row in better.rows:
        if others := asked[row.agent, row.prompt_ids]:
            of = f"{name} prompt {len(found) // 2}" if found else name
            found += _compare(better, (row,), worse, (others.pop(0),), of)
    return found


def _compare(
    better: RolloutRows, rows: Sequence[Row], worse: RolloutRows, others: Sequence[Row], name: str
) -> list[RolloutRows]:
    """Both sides, the better one first; none where they have the same tokens."""
    tokens, theirs = ([(row.agent, row.prompt_ids, row.token_ids, row.mask) for row in side] for side in (rows, others))
    return [] if tokens == theirs else [_side(better, rows, name, 0), _side(worse, others, name, 1)]


def _side(of: RolloutRows, rows: Sequence[Row], name: str, number: int) -> RolloutRows:
    return RolloutRows(tuple(rows), of.reward, of.score).relabel(task=name, rollout=number, reward=of.reward)


def choose_pairs(rollouts: Sequence[RolloutRows], margin: float = 0.0) -> list[RolloutRows]:
    """The sides of comparisons between the best and the worst rollout from each first prompt. Rollouts without a reward
    are neither.

    margin: the least difference of their rewards, which always differ.
    """
    groups = defaultdict[State, list[RolloutRows]](list)
    scored = [rollout for rollout in rollouts if rollout.scored and rollout.drawn]
    for rollout in scored:
        groups[rollout.turns[0]].append(rollout)
    chosen = list[RolloutRows]()
    for group in groups.values():
        chosen += _extremes(group, margin, f"{group[0].rows[0].task} pair {len(chosen)}")
    return chosen or (_extremes(scored, margin, f"{scored[0].rows[0].task} pair 0") if scored else [])


def _extremes(group: Sequence[RolloutRows], margin: float, name: str) -> list[RolloutRows]:
    """The sides of the comparison that is furthest apart. Best and worst may have the same tokens: then the next."""
    ranked, least = sorted(group, key=_reward), max(margin, 1e-9)
    if _reward(ranked[-1]) - _reward(ranked[0]) < least:
        return []
    if found := pair_rollouts(ranked[-1], ranked[0], name):
        return found
    apart = sorted(combinations(ranked, 2), key=lambda pair: _reward(pair[0]) - _reward(pair[1]))
    far = (pair for pair in apart if _reward(pair[1]) - _reward(pair[0]) >= least)
    return next(filter(None, (pair_rollouts(better, worse, name) for worse, better in far)), [])


def _reward(rollout: RolloutRows) -> float:
    return math.nan if rollout.reward is None else rollout.reward


def rewards_differ(rollouts: Sequence[RolloutRows]) -> bool:
    """True if some rollout earned more than another, so that a preference could be learned."""
    return len({rollout.reward for rollout in rollouts if rollout.scored and rollout.drawn}) > 1


def split_sides(rows: Sequence[Row]) -> dict[str, list[list[Row]]]:
    """The rows of each side of each comparison, by the comparison's task."""
    found = dict[str, dict[tuple[int, float | None], list[Row]]]()
    for row in rows:
        found.setdefault(row.task, {}).setdefault((row.rollout, row.reward), []).append(row)
    return {task: [*sides.values()] for task, sides in found.items()}

"""Advantages and targets of a critic, by hand and by their definitions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from workbench_training.critic.returns import (
    compute_gae,
    gather_turns,
    normalise,
    split_trajectories,
)
from workbench_training.papers.archer.turn_critic import compute_turn_targets
from workbench_training.rollouts.token_rows import Row


def row(mask: tuple[int, ...], reward: float | None = 1.0, **more: Any) -> Row:
    zeros = (0,) * len(mask)
    return Row((9,), zeros, mask, tuple(map(float, zeros)), reward, **{"task": "t", **more})


def test_turns_end_before_tokens_of_others_and_at_the_end() -> None:
    (found,) = split_trajectories([row((1, 1, 0, 0, 1, 0, 1, 1))])
    assert found.places.tolist() == [0, 1, 4, 6, 7] and found.rows.tolist() == [0] * 5
    assert found.ends.tolist() == [False, True, True, False, True]
    turns = gather_turns([found, found])
    assert turns.starts[1].tolist() == [0, 4, 6] * 2 and turns.ends[1].tolist() == [2, 5, 8] * 2
    assert turns.lengths.tolist() == [2, 1, 2] * 2 and turns.final.tolist() == [False, False, True] * 2
    assert turns.rewards.tolist() == [0, 0, 1] * 2
    assert found.rewards.tolist() == [0, 0, 0, 0, 1]


def test_rows_of_a_rollout_are_one_trajectory_in_the_order_of_their_turns() -> None:
    rows = [
        row((1, 1), turn=3, rollout=1),
        row((1,), turn=1, rollout=1),
        row((1,), rollout=2, reward=0.25),
        row((1,), rollout=3, reward=None),
        row((0, 0), rollout=4),
    ]
    first, second = split_trajectories(rows)
    assert first.rows.tolist() == [1, 0, 0] and first.ends.tolist() == [True, False, True]
    assert first.rewards.tolist() == [0, 0, 1] and second.rewards.tolist() == [0.25]


def test_turns_earn_what_their_steps_earned() -> None:
    (found,) = split_trajectories([row((1, 1), turn=0, step_reward=0.5), row((1,), turn=1, step_reward=0.25)])
    assert found.rewards.tolist() == [0, 0.5, 0.25]


def test_each_agent_has_a_trajectory_and_a_reward_of_its_own_but_in_a_common_environment() -> None:
    rows = [row((1,), 10.0, turn=0, agent="a"), row((1, 1), 0.1, turn=1, agent="b"), row((1,), 10.0, turn=2, agent="a")]
    first, second = split_trajectories(rows)
    assert first.rows.tolist() == [0, 2] and first.rewards.tolist() == [0, 10] and second.rewards.tolist() == [0, 0.1]
    earned = (("a", 0.0), ("b", 0.75), ("a", None))  # the last call was no step
    common = [row((1,), turn=k, agent=agent, step_reward=step) for k, (agent, step) in enumerate(earned)]
    (found,) = split_trajectories(common)
    assert found.rewards.tolist() == [0, 0.75, 0]


def test_a_rollout_of_an_earlier_step_is_another_one() -> None:
    assert len(split_trajectories([row((1,), version=0), row((1,), version=1)])) == 2


ENDS = np.array([False, True, False, False, True])


def test_gae_by_hand() -> None:
    """Two turns of two and three tokens; a discount of 0.5 between turns, none within (POAD)."""
    rewards, values = np.array([0.0, 1.0, 0.0, 0.0, 2.0]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    found, returns = compute_gae(rewards, values, ENDS, gamma=0.5, lam=0.5)
    last = 2 - 5
    fourth = (5 - 4) + 0.5 * last
    third = (4 - 3) + 0.5 * fourth
    second = (1 + 0.5 * 3 - 2) + 0.25 * third
    first = (2 - 1) + 0.5 * second
    assert found.tolist() == [first, second, third, fourth, last] and (returns - values).tolist() == found.tolist()


@pytest.mark.parametrize(("gamma", "lam"), [*itertools.product((1.0, 0.9), (0.0, 0.7, 1.0))])
def test_gae_is_the_sum_of_later_errors(gamma: float, lam: float) -> None:
    """By the definition: errors of later tokens, each discounted by all that lies between."""
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=5), rng.normal(size=5)
    discounts = np.where(ENDS, gamma, 1.0)
    errors = rewards + discounts * np.append(values[1:], 0.0) - values
    wanted = [sum(errors[k] * np.prod(discounts[t:k] * lam) for k in range(t, 5)) for t in range(5)]
    found, returns = compute_gae(rewards, values, ENDS, gamma=gamma, lam=lam)
    assert np.allclose(found, wanted) and np.allclose(returns, found + values)
    if lam == 1.0:  # the returns are then what was earned, whatever the values
        earned = [sum(rewards[k] * np.prod(discounts[t:k]) for k in range(t, 5)) for t in range(5)]
        assert np.allclose(returns, earned)


def test_the_length_of_a_turn_changes_nothing() -> None:
    """POAD: a long turn and a short one that earn the same are worth the same."""
    worth = []
    for length in (2, 20):
        ends = np.append(np.zeros(length - 1, bool), True)
        rewards = np.append(np.zeros(length - 1), 1.0)
        worth.append(compute_gae(rewards, np.zeros(length), ends, gamma=0.9, lam=1.0)[0][0])
    assert worth[0] == worth[1]


def test_worths_of_turns_by_hand() -> None:
    """Two trajectories, of three turns and of one; the value of the first state of the second is not looked at."""
    turns = gather_turns(split_trajectories([row((1, 0, 1, 1, 0, 1)), row((1, 1), 2.0, rollout=1)]))
    found = compute_turn_targets(turns, np.array([0.3, 0.5, 0.8, 0.9]), 0.9)
    assert np.allclose(found, [0.45, 0.72, 1.0, 2.0])


def test_normal_form() -> None:
    made = normalise(np.array([1.0, 2.0, 6.0]))
    assert abs(made.mean()) < 1e-12 and abs(made.std() - 1) < 1e-6
    assert normalise(np.array([3.0])).tolist() == [3.0]

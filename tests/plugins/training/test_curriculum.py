"""Rows are drawn by their recent success, and settings change by stages."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from workbench_training.curriculum import draw_rows, row_weight, update_record
from workbench_training.grpo import GRPO
from workbench_training.settings import TrainingSchedule


def known(*visits: Sequence[float]) -> list[float] | None:
    record = None
    for scores in visits:
        record = update_record(record, scores)
    return record


def test_weights_by_hand() -> None:
    assert row_weight(None) == 1.0
    assert known([1, 0, 1, 0]) == [2.0, 4.0, 0.0] and row_weight([2.0, 4.0, 0.0]) == 1.0
    assert known([0, 0, 0, 0]) == [0.0, 4.0, 1.0]
    assert row_weight([0.0, 4.0, 1.0]) == pytest.approx(0.05 + 0.95 * 4 * 0.1 * 0.9)
    assert known([1, 1], [1, 1]) == [3.0, 3.0, 2.0] and row_weight([3.0, 3.0, 2.0]) == 0.05
    assert known([0, 0], [0, 0], [0, 1]) == [1.0, 3.5, 0.0]  # what comes alive is drawn again
    assert row_weight([1.0, 3.5, 0.0]) > 0.8
    assert update_record([1.0, 2.0, 1.0], []) == [1.0, 2.0, 1.0]  # nothing could be scored: nothing is known


def test_draws_follow_weights_and_no_row_dies() -> None:
    rows = {"dead": [0.0, 8.0, 5.0], "half": [4.0, 8.0, 0.0], "easy": [8.0, 8.0, 5.0]}
    rng = random.Random(0)
    counts = Counter(i for _ in range(2000) for i in draw_rows(rng, list(rows), rows, 1))
    assert counts[1] / 2000 == pytest.approx(1 / 1.1, abs=0.03)
    assert 40 < counts[0] < 160 and 40 < counts[2] < 160
    assert all(len(set(draw_rows(rng, list(rows), rows, 2))) == 2 for _ in range(50))
    assert draw_rows(random.Random(7), list(rows), rows, 3) == draw_rows(random.Random(7), list(rows), rows, 3)
    assert len(draw_rows(rng, list(rows), rows, 9)) == 3


def test_wrong_stages_are_refused() -> None:
    made = GRPO.model_validate({"stages": [{"start": 2, "rate": 1e-4}, {"start": 5, "rewards": [{"kind": "format"}]}]})
    assert made.stages[1].rewards is not None
    with pytest.raises(ValidationError, match="increasing steps"):
        GRPO.model_validate({"stages": [{"start": 5}, {"start": 2}]})


def test_stages_change_rewards_rate_and_horizon() -> None:
    """Of the stage that a step is in; what a stage leaves out is as without stages."""
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    made = GRPO.model_validate(
        {
            "stages": [
                {"start": 2, "rate": 1e-4, "max_steps": 3},
                {"start": 5, "rewards": [{"kind": "format"}]},
            ]
        }
    )
    source = StudyRolloutSource.__new__(StudyRolloutSource)
    source.stages = made.stages
    assert [source.at(step, "rate") for step in (0, 1, 2, 4, 5, 9)] == [None, None, 1e-4, 1e-4, None, None]
    assert [source.at(step, "max_steps") for step in (1, 2, 5)] == [None, 3, None]
    assert source.at(4, "rewards") is None and source.at(5, "rewards")[0].kind == "format"


def half_impossible() -> Any:
    from tests.helpers.grpo_worlds import TextSource

    class HalfImpossible(TextSource):
        """Nothing that is said to e, f, g and h earns anything."""

        async def rollouts(self, tasks: Any, schedule: TrainingSchedule, step: int) -> Any:
            groups = await super().rollouts(tasks, schedule, step)
            for group in groups:
                for rollout in group:
                    if rollout.example["text"] in "efgh":
                        rollout.reward = 0.0
                    rollout.result = replace(rollout.result, score=rollout.reward)
                    self.visits[rollout.example["text"]] += 1
                    self.earned.append((rollout.example["text"], rollout.reward))
            return groups

        visits: Counter[str]

        def __init__(self, *args: Any, **more: Any):
            super().__init__(*args, **more)
            self.visits, self.earned = Counter(), list[tuple[str, float]]()

    return HalfImpossible


@pytest.mark.filterwarnings("ignore")
def test_less_is_spent_on_rows_that_teach_nothing_and_as_much_is_learned(tmp_path: Path) -> None:
    """Half of the rows are impossible. Reported as it comes: share of rollouts on these, and what the others earn."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.helpers.grpo_worlds import bandit, sevens

    world, shares, late = half_impossible(), {}, {}
    for name, schedule in (("uniform", {}), ("curriculum", {"curriculum": True})):
        for seed in range(2):
            made = bandit(
                tmp_path,
                sevens,
                seed=seed,
                steps=24,
                texts="abcdefgh",
                world=world,
                schedule=schedule,
                tasks=2,
                checkpoints=f"{name}{seed}",
            )
            source: Any = made.source
            wasted = sum(n for text, n in source.visits.items() if text in "efgh")
            shares.setdefault(name, []).append(wasted / source.visits.total())
            possible = [earned for text, earned in source.earned[-6 * 16 :] if text in "abcd"]
            late.setdefault(name, []).append(statistics.mean(possible))
    print({"wasted": shares, "late": late})
    assert all(a < b - 0.1 for a, b in zip(shares["curriculum"], shares["uniform"], strict=True)), shares
    assert statistics.mean(late["curriculum"]) > statistics.mean(late["uniform"]) - 0.05, late


@pytest.mark.filterwarnings("ignore")
def test_a_curriculum_and_stages_survive_a_kill(tmp_path: Path) -> None:
    """What is known of rows is part of the checkpoint, and drawn rows are the same after it."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.helpers.grpo_worlds import bandit, sevens

    world = half_impossible()
    settings: dict[str, Any] = {
        "schedule": {"save_every": 2, "curriculum": True, "dynamic_sampling": 1},
        "steps": 7,
        "tasks": 2,
        "texts": "abcdefgh",
        "world": world,
        "rate": 3e-3,
    }
    whole = bandit(tmp_path, sevens, checkpoints="whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        bandit(tmp_path, sevens, crash=6, **settings)
    again = bandit(tmp_path, sevens, **settings)
    assert again.state == whole.state and whole.state.known
    assert again.learners[""].policy.digest() == whole.learners[""].policy.digest()
    assert [f["step"] for f in again.history] == [5.0, 6.0] or [f["step"] for f in again.history] == [4.0, 5.0, 6.0]

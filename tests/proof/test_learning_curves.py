"""Learning curves: the rewards of training steps, in the report of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.proof import LearningCurve, read_learning_curves
from workbench.proof.learning_curves import draw_bars


class Events:
    """A store that holds events of optimizers alone."""

    path = Path("run.db")

    def __init__(self, *told: tuple[str, str, int, dict[str, Any]]):
        self.told = told

    def rows(self, sql: str, *args: Any) -> list[dict[str, str]]:
        keys = ("optimizer", "message", "calls", "figures")
        return [{"data": json.dumps(dict(zip(keys, one, strict=True)))} for one in self.told]


def curves(*told: tuple[str, str, int, dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    return {one.name: one.points for one in read_learning_curves(Events(*told), 1)}  # type: ignore[arg-type]


def step(number: int, reward: Any, calls: int, *, name: str = "grpo", prefix: str = "") -> Any:
    return name, f"{prefix}step {number}: reward", calls, {"step": float(number - 1), "reward": reward}


def test_steps_make_a_curve_and_other_messages_none() -> None:
    other = ("grpo", "alarm at step 2: entropy", 25, {"step": 1.0, "reward": 9.0})
    found = curves(step(1, 0.25, 10), step(2, 0.5, 20), other, ("gepa", "round 1: x", 3, {"reward": 1.0}))
    assert found == {"grpo": [(1, 0.25), (2, 0.5)]}


def test_a_resumed_training_replaces_steps_and_another_one_has_a_curve_of_its_own() -> None:
    first = [step(1, 0.1, 10), step(2, 0.2, 20), step(3, 0.3, 30)]
    assert curves(*first, step(2, 0.21, 20), step(3, 0.31, 30)) == {"grpo": [(1, 0.1), (2, 0.21), (3, 0.31)]}
    assert curves(*first, step(3, 0.3, 30)) == {"grpo": [(1, 0.1), (2, 0.2), (3, 0.3)]}
    assert curves(*first, step(1, 0.4, 50), step(2, 0.5, 60)) == {
        "grpo": [(1, 0.1), (2, 0.2), (3, 0.3)],
        "grpo, 2": [(1, 0.4), (2, 0.5)],
    }
    turns = [step(1, 0.1, 10, prefix="proposer, turn 1, "), step(1, 0.2, 20, prefix="solver, turn 1, ")]
    assert [*curves(*turns)] == ["grpo, proposer, turn 1", "grpo, solver, turn 1"]


@pytest.mark.parametrize("reward", [None, "high", float("nan")])
def test_a_step_without_a_reward_is_no_point(reward: Any) -> None:
    assert curves(step(1, reward, 1), step(2, 0.5, 2)) == {"grpo": [(2, 0.5)]}


def test_a_curve_is_one_line_of_the_report() -> None:
    curve = LearningCurve("grpo", [(1, 0.0), (2, 1.0), (3, 0.5)])
    assert curve.describe() == (
        "Training (grpo): reward 0.000 in step 1, 0.500 in step 3, at most 1.000 in step 2  ▁█▅"
    )
    assert LearningCurve("sft", [(1, 0.4375)]).describe() == "Training (sft): reward 0.438 in step 1"
    assert draw_bars([0.5] * 4) == "▁▁▁▁"
    assert len(draw_bars([float(n) for n in range(1000)])) == 60

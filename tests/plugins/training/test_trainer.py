"""The loop of training: what stages, alarms, resets and multipliers do, beyond the words that are told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_runs import run  # noqa: E402
from tests.helpers.grpo_worlds import TextSource, bandit, sevens, without_clock  # noqa: E402

from workbench.task import Example  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.presets import make_objective  # noqa: E402
from workbench_training.rewards import Rollout  # noqa: E402
from workbench_training.rollouts.token_rows import Row  # noqa: E402
from workbench_training.settings import TrainingSchedule  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Costly(TextSource):
    """Rows know what their rollouts cost."""

    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, **more)
        self.lengths: list[float] = []  # by step

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        groups = await super().rollouts(tasks, schedule, step)
        drawn = [rollout.drawn for group in groups for rollout in group]
        self.lengths.append(sum(drawn) / len(drawn))
        return groups

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        return [replace(row, costs=rollout.costs) for row in super().rows(rollout, version)]


# What reaches the workflow and the rewards


def test_steps_and_rewards_of_stages_reach_the_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent whose answers cannot be read goes on to its last turn: calls are its most steps."""
    from tests.helpers.tiny_lm import save

    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    drawn: dict[int, set[tuple[int, tuple[str, ...]]]] = {}
    real = StudyRolloutSource.rollouts

    async def watched(self: StudyRolloutSource, tasks: Any, schedule: TrainingSchedule, step: int) -> Any:
        groups = await real(self, tasks, schedule, step)
        drawn[step] = {(r.result.calls, tuple(r.parts)) for group in groups for r in group}
        return groups

    monkeypatch.setattr(StudyRolloutSource, "rollouts", watched)
    agent = {"agent": "text -> label: Literal['billing', 'technical']", "max_steps": 5, "max_tokens": 8}
    schedule = {"steps": 5, "tasks": 2, "rollouts": 2, "evaluate_every": 5}
    stages = [
        {"start": 0, "max_steps": 1},
        {"start": 2, "max_steps": 2},
        {"start": 3, "max_steps": 2, "rewards": [{"kind": "length", "tokens": 8}]},
        {"start": 4, "max_steps": 3},
    ]
    settings = {"schedule": schedule, "stages": stages, "device": "cpu", "guards": ["empty", "repeated"]}
    base = save(tmp_path / "base", 0, positions=2048)
    report = run(tmp_path, lm=f"hf:{base}", nodes={"solve": agent}, optimizers=[{"grpo": settings}], rows=(4, 2, 2))
    assert report.status == "finished"
    assert drawn == {
        0: {(1, ("metric",))},
        1: {(1, ("metric",))},
        2: {(2, ("metric",))},
        3: {(2, ("length",))},
        4: {(3, ("metric",))},  # the last stage gives no rewards: they are as without stages
    }


# Alarms


def test_a_rollback_restores_the_best_weights_and_forgets_the_optimizer(tmp_path: Path) -> None:
    """Every step raises an alarm. The candidate after step 2 is the best, so what later steps learn is taken back."""
    ends = {}
    for on_alarm in ("rollback", "tell"):
        made = bandit(
            tmp_path,
            sevens,
            steps=4,
            checkpoints=on_alarm,
            schedule={"on_alarm": on_alarm, "evaluate_every": 2},
            constants={"alarms.ENTROPY": (0.0, 0.1)},
        )
        learner = made.learners[""]
        first, last = (folder for _, folder in made.source.submissions)  # type: ignore[attr-defined]
        best = dict(Policy(str(first), device="cpu").trained)
        same = all(torch.equal(best[name], p) for name, p in learner.policy.trained.items())
        ends[on_alarm] = (first == last, same, bool(learner.optimizer.state))
        assert all("grad_norm" in f for f in made.history), "each step learned something"
    assert ends == {"rollback": (True, True, False), "tell": (False, False, True)}


def told(made: Any, what: str) -> list[str]:
    return [text for text in made.told if what in text]


def test_a_divergence_above_its_limit_is_an_alarm(tmp_path: Path) -> None:
    objective = make_objective("grpo", {"beta": 0.01})
    made = bandit(tmp_path, sevens, steps=4, objective=objective, constants={"alarms.KL": 1e-6}, checkpoints="low")
    assert made.history[0]["kl"] <= 1e-6 < made.history[1]["kl"]
    assert [text.split(":")[0] for text in told(made, "divergence")] == [f"alarm at step {n}" for n in (2, 3, 4)]
    calm = bandit(tmp_path, sevens, steps=4, objective=objective, checkpoints="high")
    assert without_clock(calm.history) == without_clock(made.history) and not told(calm, "alarm")


class Misremembered(TextSource):
    """The engine reports other log-probabilities than the policy has, as one with stale weights would."""

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        rows = super().rows(rollout, version)
        return [replace(r, logprobs=tuple(p - 0.2 for p in r.logprobs)) for r in rows] if version == 1 else rows


def test_drawing_and_training_apart_is_an_alarm(tmp_path: Path) -> None:
    made = bandit(tmp_path, sevens, steps=3, world=Misremembered, schedule={"on_alarm": "stop"})
    assert [text.split(":")[0] for text in told(made, "sampling and training differ by 0.2")] == ["alarm at step 2"]
    assert len(made.history) == 2 and made.history[0]["off_policy_gap"] < 1e-3


class Overflowing(TextSource):
    """Rows of the second step are old and were all but impossible then: the ratio of the bad ones is infinite."""

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        rows = super().rows(rollout, version)
        old = [replace(r, version=0, logprobs=tuple(-1000.0 for _ in r.logprobs)) for r in rows]
        return old if version == 1 else rows


def test_updates_that_are_not_finite_are_told(tmp_path: Path) -> None:
    made = bandit(tmp_path, sevens, steps=3, world=Overflowing)
    assert told(made, "left out") == ["1 updates of step 2 were left out: their loss or gradient was not finite"]
    assert [f.get("skipped") for f in made.history] == [None, 1.0, None] and made.state.skipped == {"": 1}
    assert all(math.isfinite(float(p.detach().sum())) for p in made.learners[""].policy.trained.values())
    assert not told(bandit(tmp_path, sevens, steps=3, checkpoints="other"), "left out")


# Resets of the reference


def test_a_large_divergence_resets_reference_and_optimizer(tmp_path: Path) -> None:
    """Of the smoothed divergence, not of stalls, which are out of reach here."""
    objective = make_objective("grpo", {"beta": 0.01, "resets": True})
    common: dict[str, Any] = {"objective": objective, "schedule": {"evaluate_every": 1}}
    low, high = (
        {"trainer.RESET_PATIENCE": 1000, "trainer.RESET_AFTER": 2, "trainer.RESET_KL": most} for most in (1e-6, 10.0)
    )
    made = bandit(tmp_path, sevens, steps=2, checkpoints="reset", constants=low, **common)
    (reset,) = told(made, "reference is reset")
    assert reset.startswith("step 2: the reference is reset (divergence ") and made.state.last_reset == 2
    learner = made.learners[""]
    assert learner.reference is not None and not learner.optimizer.state and made.state.kl == {}
    assert all(torch.equal(learner.reference[name], p) for name, p in learner.policy.trained.items())
    kept = bandit(tmp_path, sevens, steps=2, checkpoints="kept", constants=high, **common)
    other = kept.learners[""]
    assert not told(kept, "reference is reset") and other.optimizer.state and kept.state.kl[""] > 1e-6
    assert other.reference is not None
    assert any(not torch.equal(other.reference[name], p) for name, p in other.policy.trained.items())
    longer = bandit(tmp_path, sevens, steps=3, checkpoints="longer", constants=low, **common)
    assert abs(longer.history[2]["kl"]) < 1e-6 < longer.history[1]["kl"]


# Constraints


#: A step is a large share of a short training.
FAST = {"advantages.RATE": 0.1}


def constrained() -> Any:
    return make_objective("constrained", {"constraints": {"tokens": 4.0}})


def test_multipliers_survive_a_kill(tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "steps": 6,
        "objective": constrained(),
        "constants": FAST,
        "schedule": {"save_every": 3},
        "world": Costly,
    }
    whole = bandit(tmp_path, sevens, checkpoints="whole", **common)
    with pytest.raises(KeyboardInterrupt):
        bandit(tmp_path, sevens, crash=5, **common)
    again = bandit(tmp_path, sevens, **common)
    assert [f["step"] for f in again.history] == [3.0, 4.0, 5.0]
    grown = [f["multiplier_tokens"] for f in whole.history]
    assert grown == sorted(grown) and grown[2] > 0.2, "at the checkpoint there is something to forget"
    assert again.state.multipliers == whole.state.multipliers
    assert without_clock(again.history) == without_clock(whole.history[3:])
    assert again.learners[""].policy.digest() == whole.learners[""].policy.digest()


def test_a_budget_of_tokens_is_met(tmp_path: Path) -> None:
    """Each 7 of eight earns, so that answers want to be long: the multiplier holds their mean within 10% of the budget,
    and what fits into it is still learned."""
    made = bandit(tmp_path, sevens, steps=60, objective=constrained(), constants=FAST, world=Costly)
    lengths = made.source.lengths  # type: ignore[attr-defined]
    assert lengths[0] > 6.0
    assert sum(lengths[-15:]) / 15 == pytest.approx(4.0, rel=0.1)
    assert sum(f["reward"] for f in made.history[-15:]) / 15 > 0.25  # 0.5 is all that four tokens can earn


class Remembering(TextSource):
    """Later candidates are better."""

    @property
    def remembers(self) -> bool:
        return True

    async def submit(self, folders: Any, step: int, **how: Any) -> float | None:
        await super().submit(folders, step, **how)
        return step / 10


def test_a_longer_training_does_not_delete_the_weights_of_a_shorter_one(tmp_path: Path) -> None:
    """Its first steps are the same, to the bit. Alone it keeps the best only."""

    def train(folder: Path, steps: int, name: str) -> set[str]:
        schedule = {"evaluate_every": 2, "keep": 1}
        bandit(folder, sevens, steps=steps, schedule=schedule, checkpoints=name, world=Remembering)
        return {path.name for path in (folder / "weights").iterdir() if path.is_dir()}

    (short,) = train(tmp_path / "both", 2, "short")
    (alone,) = train(tmp_path / "alone", 6, "long")
    assert train(tmp_path / "both", 6, "long") == {short, alone} and short != alone
    # Whoever was first: where the shorter one comes later, the longer one may not take it away.
    later = tmp_path / "later"
    schedule = {"evaluate_every": 2, "keep": 1, "save_every": 2}
    bandit(later, sevens, steps=2, schedule=schedule, checkpoints="long", world=Remembering)
    train(later, 2, "short")
    bandit(later, sevens, steps=6, schedule=schedule, checkpoints="long", world=Remembering)
    assert {path.name for path in (later / "weights").iterdir() if path.is_dir()} == {short, alone}

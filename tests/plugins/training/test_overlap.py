"""Rollouts drawn one step ahead: by which weights, truly at the same time, the same after a kill, and paid for."""

from __future__ import annotations

import asyncio
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from pydantic import ValidationError  # noqa: E402
from tests.helpers.forking import start_module, start_python  # noqa: E402
from tests.helpers.grpo_runs import assert_equal_candidates, candidates, kill_after, run  # noqa: E402
from tests.helpers.grpo_worlds import CopyingEngine, TextSource, bandit, sevens  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402

from workbench.task import Example  # noqa: E402
from workbench_training.grpo import GRPO  # noqa: E402
from workbench_training.learner import Learner  # noqa: E402
from workbench_training.presets import make_objective  # noqa: E402
from workbench_training.rewards import Rollout  # noqa: E402
from workbench_training.settings import TrainingSchedule  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = Path(__file__).parents[3]
WAIT = 60.0  # seconds, for what must happen


def trained(folder: Path, staleness: int = 1, *, schedule: dict[str, Any] | None = None, **more: Any) -> Any:
    settings = {"staleness": staleness, **(schedule or {})}
    return bandit(folder, sevens, engine_of=CopyingEngine, schedule=settings, **more)


def weights(trainer: Any) -> str:
    return trainer.learners[""].policy.digest()


class Noted(TextSource):
    """Notes by step the weights that draw, and how many rollouts."""

    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, **more)
        self.drew: dict[int, list[str]] = {}

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        assert isinstance(self.engine, CopyingEngine)
        self.drew.setdefault(step, []).append(self.engine.copied.digest())
        return await super().rollouts(tasks, schedule, step)


def test_each_step_is_drawn_by_weights_at_most_one_update_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a candidate (step 4) and a checkpoint (step 3) by the current ones; the rows say which."""
    before: list[str] = []  # by step: the weights before its update
    versions: list[set[int]] = []
    real = Learner.step

    def watched(self: Learner, rows: Any, *args: Any, **more: Any) -> dict[str, float]:
        before.append(self.policy.digest())
        versions.append({row.version for row in rows})
        return real(self, rows, *args, **more)

    monkeypatch.setattr(Learner, "step", watched)
    made = trained(tmp_path, steps=8, world=Noted, schedule={"evaluate_every": 4, "save_every": 3})
    assert len(set(before)) == 8, "each update changed the weights"
    expected = [0, 0, 1, 3, 4, 4, 6, 6]
    assert made.source.drew == {step: [before[version]] for step, version in enumerate(expected)}
    assert versions == [{version} for version in expected]
    assert [f["stale"] for f in made.history] == [step - version for step, version in enumerate(expected)]


class Meeting(TextSource):
    """A drawing ahead that ends only once the update before it has begun."""

    learning = threading.Event()
    drawing = threading.Event()

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        if step == 1:
            self.drawing.set()
            assert await asyncio.to_thread(self.learning.wait, WAIT), "no update began while this was drawn"
        return await super().rollouts(tasks, schedule, step)


def test_drawing_and_learning_wait_for_each_other_and_both_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Learner.step

    def watched(self: Learner, rows: Any, advantages: Any, version: int, *args: Any, **more: Any) -> dict[str, float]:
        if more["done"] == 0:
            Meeting.learning.set()
            assert Meeting.drawing.wait(WAIT), "nothing was drawn during the update"
        return real(self, rows, advantages, version, *args, **more)

    monkeypatch.setattr(Learner, "step", watched)
    made = trained(tmp_path, steps=2, world=Meeting)
    assert len(made.history) == 2 and "grad_norm" in made.history[1]


class Timed(TextSource):
    """A drawing ahead that ends before the update begins, or begins after its end."""

    first = "draw"
    drawn_steps: dict[int, threading.Event]
    updated_steps: dict[int, threading.Event]

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        if step and self.first == "update":
            assert await asyncio.to_thread(self.updated_steps[step - 1].wait, WAIT)
        groups = await super().rollouts(tasks, schedule, step)
        self.drawn_steps[step].set()
        return groups


def test_the_weights_do_not_depend_on_what_is_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, found = Learner.step, {}

    def timed(self: Learner, *args: Any, **more: Any) -> dict[str, float]:
        step = more["done"]
        if Timed.first == "draw" and step < 3:
            assert Timed.drawn_steps[step + 1].wait(WAIT)
        figures = real(self, *args, **more)
        Timed.updated_steps[step].set()
        return figures

    monkeypatch.setattr(Learner, "step", timed)
    for first in ("draw", "update"):
        Timed.first = first
        Timed.drawn_steps, Timed.updated_steps = ({i: threading.Event() for i in range(4)} for _ in range(2))
        made = trained(tmp_path, steps=4, world=Timed, schedule={"curriculum": True}, tasks=2, checkpoints=first)
        found[first] = (weights(made), sorted(made.source.drawn), made.state)
    assert found["draw"] == found["update"]
    monkeypatch.undo()
    fresh = trained(tmp_path, 0, steps=4, schedule={"curriculum": True}, tasks=2, checkpoints="fresh")
    assert weights(fresh) != found["draw"][0], "the weights that draw matter"


@pytest.mark.parametrize("crash", [2, 3, 4])
def test_a_training_that_died_ends_with_the_same_weights(tmp_path: Path, crash: int) -> None:
    schedule = {"save_every": 3, "curriculum": True}
    whole = trained(tmp_path, steps=6, checkpoints="whole", schedule=schedule)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, steps=6, checkpoints="died", schedule=schedule, crash=crash)
    again = trained(tmp_path, steps=6, checkpoints="died", schedule=schedule)
    assert weights(again) == weights(whole) and again.state == whole.state


AHEAD = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.plugins.training.test_overlap import run_ahead
run_ahead(Path({folder!r}), {url!r}, again={again})
"""


def run_ahead(folder: Path, url: str, *, again: bool = False, heard: list[Any] | None = None) -> Any:
    """A whole run, 16 calls to a step; the second, third, fifth and sixth step are drawn ahead."""
    torch.set_num_threads(1)
    schedule = {"steps": 6, "tasks": 4, "rollouts": 4, "evaluate_every": 3, "save_every": 3, "staleness": 1}
    grpo = {
        "schedule": schedule,
        "rewards": [{"kind": "length", "tokens": 4}],
        "guards": ["empty"],
        "learning": {"rate": 1e-3},
        "device": "cpu",
        "server": {"url": url, "seeds": True},
    }
    common: dict[str, Any] = {"optimizers": [{"grpo": grpo}], "lm": f"hf:{folder.parent / 'base'}", "rows": (8, 3, 3)}
    common["nodes"] = {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 6}}}
    return run(folder, again=True) if again else run(folder, heard=heard, **common)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server that outlives the trainings that draw from it."""
    base = save(tmp_path / "base", 1, positions=512)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = start_module("tests.helpers.vllm_stand_in", str(base), "--port", str(port))
    try:
        deadline = time.monotonic() + WAIT
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert job.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        job.kill()
        job.wait()


@pytest.mark.timeout(600)
def test_killed_while_a_step_is_drawn_ahead_and_resumed_it_ends_with_the_same_weights(
    tmp_path: Path, server: str
) -> None:
    """kill -9 while the second, third, fifth and last step are drawn; the journal answers what was drawn."""
    heard: list[Any] = []
    whole = run_ahead(tmp_path / "whole", server, heard=heard)
    assert whole.status == "finished", whole.error
    steps = [figures for message, figures in heard if message.startswith("step ")]
    assert [figures["stale"] for figures in steps] == [0, 1, 1, 0, 1, 1]
    killed, again = tmp_path / "killed", False
    for calls in (20, 40, 70, 90):
        code = AHEAD.format(root=str(ROOT), folder=str(killed), url=server, again=again)
        kill_after(calls, start_python(code), killed, seconds=100)
        again = True
    report = run_ahead(killed, server, again=True)
    assert report.status == "finished", report.error
    assert_equal_candidates(killed, tmp_path / "whole")
    assert len(candidates(killed)) > 2
    assert report.as_dict()["spent"]["calls"] == whole.as_dict()["spent"]["calls"]


@pytest.mark.long
def test_it_learns_as_well_as_with_fresh_rollouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two seeds: the mean reward of the last ten steps. Random answers earn 0.02."""
    ends = {
        staleness: [
            statistics.mean(
                f["reward"]
                for f in trained(tmp_path, staleness, seed=seed, checkpoints=f"{staleness}{seed}").history[-10:]
            )
            for seed in range(2)
        ]
        for staleness in (0, 1)
    }
    with capsys.disabled():
        print(f"\nreward by staleness: {ends}")
    assert min(ends[0] + ends[1]) > 0.5
    assert abs(statistics.mean(ends[0]) - statistics.mean(ends[1])) < 0.15


def test_rows_of_older_weights_are_corrected_and_their_gap_is_told(tmp_path: Path) -> None:
    """The gap between sampler and trainer is zero up to rounding for fresh rows, and that of an update for others."""
    made = trained(tmp_path, steps=4, rate=1e-2, schedule={"evaluate_every": 3})
    gaps = [f["off_policy_gap"] for f in made.history]
    assert max(gaps[0], gaps[3]) < 1e-4 < 1e-3 < min(gaps[1], gaps[2])
    assert all("off_policy_masked" in f for f in made.history)


def test_without_correction_rows_are_clipped_against_their_own_log_probabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale: list[bool] = []
    real = Learner._update

    def watched(self: Learner, step: Any, *args: Any) -> None:
        stale.extend(step.stale.tolist())
        real(self, step, *args)

    monkeypatch.setattr(Learner, "_update", watched)
    objective = make_objective("grpo", {"correction": False})
    trained(tmp_path, steps=2, tasks=2, objective=objective)
    assert stale == 16 * [False] + 16 * [True]


# Budget and end


@pytest.mark.parametrize("limits", [{"steps": 3}, {"affords": 3}])
def test_nothing_is_drawn_ahead_of_the_last_step(tmp_path: Path, limits: dict[str, Any]) -> None:
    made = trained(tmp_path, world=Noted, **{"steps": 9, **limits})
    assert sorted(made.source.drew) == [0, 1, 2] and len(made.history) == 3
    assert len(made.source.drawn) == 3 * 32 and [step for step, _ in made.source.submissions] == [3]
    assert not any("ahead" in text for text in made.told)


def test_what_an_alarm_leaves_is_told_and_paid(tmp_path: Path) -> None:
    made = trained(
        tmp_path, steps=5, world=Noted, schedule={"on_alarm": "stop"}, constants={"alarms.ENTROPY": (0.0, 0.1)}
    )
    assert len(made.history) == 1 and sorted(made.source.drew) == [0, 1] and len(made.source.drawn) == 2 * 32
    assert "32 rollouts that were drawn ahead are not learned from" in made.told


class Failing(TextSource):
    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        if step == 2:
            raise RuntimeError("the server is gone")
        return await super().rollouts(tasks, schedule, step)


def test_an_error_ahead_is_raised_after_the_update_that_it_ran_beside(tmp_path: Path) -> None:
    """Step 2 is drawn during the update of step 1, which ends."""
    told: list[str] = []
    real = Learner.step
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="the server is gone"):
        patch.setattr(Learner, "step", lambda *a, **more: (told.append(str(more["done"])), real(*a, **more))[1])
        trained(tmp_path, steps=5, world=Failing)
    assert told == ["0", "1"]


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "this process has them once"),
        ({"server": {"sleep": True}}, "draws during updates"),
        ({"server": {}, "learning": {"temperature": 0.7}}, "temperature: 1"),
        ({"server": {}, "schedule": {"staleness": 2}}, "less than or equal to 1"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GRPO.model_validate({"schedule": {"staleness": 1}, **settings})


@pytest.mark.parametrize("name", ["evaluate_every", "save_every"])
def test_it_has_no_effect_where_every_step_ends_in_a_candidate_or_a_checkpoint(name: str) -> None:
    with pytest.raises(ValidationError, match=f"staleness has no effect with `{name}: 1`"):
        GRPO.model_validate({"server": {}, "schedule": {"staleness": 1, name: 1}})

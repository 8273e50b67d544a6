"""A resumed `sft` or `dpo` takes what it had trained in place of training again, and ends as if never killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.forking import start_python
from tests.helpers.grpo_runs import WORKFLOWS, candidates, needs_torch, run

from workbench.proof import Report

SETTINGS: dict[str, Any] = {
    "tasks": 8,
    "rollouts": 4,
    "epochs": 2,
    "rounds": 2,
    "race": False,
    "learning": {"rate": 5e-4, "warmup": 4},
}


class Killed(BaseException):
    """As sudden as a kill, within one process."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One entry for each update of weights: the number of updates before it."""
    needs_torch()
    from workbench_training.learner import Learner

    seen: list[int] = []
    real = Learner.step

    def watched(
        self: Learner, rows: Any, values: Any, version: int, rate: Any = None, done: Any = None
    ) -> dict[str, float]:
        seen.append(done)
        return real(self, rows, values, version, rate, done)

    monkeypatch.setattr(Learner, "step", watched)
    return seen


def learn(folder: Path, name: str = "sft", *, again: bool = False, kill: int = 0, **settings: Any) -> Report:
    """Run, and stop dead in front of the candidate of this number."""
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    real, count = StudyRolloutSource.submit, 0

    async def submit(self: StudyRolloutSource, folders: Any, step: int, **how: Any) -> float | None:
        nonlocal count
        count += 1
        if count == kill:
            raise Killed
        return await real(self, folders, step, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StudyRolloutSource, "submit", submit)
        return run(folder, again=again, rows=(8, 8, 10), optimizers=[{name: {**SETTINGS, **settings}}])


def winner(report: Report) -> Any:
    return report.as_dict()["best"]["val"], report.as_dict()["best"]["test"]


@pytest.mark.parametrize(("name", "kill", "trained"), [("dpo", 4, 4), ("sft", 3, 3), ("sft", 2, 2)])
def test_what_was_trained_is_not_trained_again(
    tmp_path: Path, steps: list[int], name: str, kill: int, trained: int
) -> None:
    """Four epochs in two rounds; of those before the kill nothing is computed, the others are to the bit what they
    were."""
    whole = learn(tmp_path / "whole", name)
    updates, expected = steps.copy(), candidates(tmp_path / "whole")
    assert updates == list(range(len(updates))) and len(expected) == 5  # the warm-up counts on from epoch to epoch
    steps.clear()
    with pytest.raises(Killed):
        learn(tmp_path / "killed", name, kill=kill)
    before = steps.copy()
    assert before == updates[: len(before)] and (len(before) == len(updates)) == (trained == 4)
    steps.clear()
    report = learn(tmp_path / "killed", name, again=True)
    assert steps == updates[len(before) :]
    assert candidates(tmp_path / "killed") == expected and winner(report) == winner(whole)


@pytest.mark.parametrize("name", ["sft", "dpo"])
def test_only_the_best_weights_stay_and_a_resumed_run_misses_none(tmp_path: Path, steps: list[int], name: str) -> None:
    """Four candidates. What lost is known to be lost, and is not trained again for that."""
    whole, pattern = learn(tmp_path / "whole", name, keep=0), "[0-9a-f]" * 16
    assert len(only(tmp_path / "whole", pattern)) == 4
    updates = steps.copy()
    steps.clear()
    with pytest.raises(Killed):
        learn(tmp_path / "killed", name, keep=1, kill=4)
    assert len(only(tmp_path / "killed", pattern)) == 2  # the best of three, and the one that is submitted
    with watched_offers() as submissions:
        report = learn(tmp_path / "killed", name, keep=1, again=True)
    assert submissions == [4], "the others are known, two of them without their weights"
    (kept,) = only(tmp_path / "killed", pattern)
    assert steps == updates and candidates(tmp_path / "killed") == candidates(tmp_path / "whole")
    assert winner(report) == winner(whole)
    trained = [(score or 0.0, folder) for folder, score in candidates(tmp_path / "whole") if folder]
    assert kept.name == max(trained, key=lambda found: found[0])[1]  # of equal ones the first
    steps.clear()
    learn(tmp_path / "killed", name, keep=1, again=True)
    assert steps == [] and only(tmp_path / "killed", pattern) == [kept]


@contextmanager
def watched_offers() -> Iterator[list[int]]:
    """The epochs whose weights are evaluated."""
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    seen: list[int] = []
    real = StudyRolloutSource.submit

    async def submit(self: StudyRolloutSource, folders: Any, step: int, **how: Any) -> float | None:
        seen.append(step)
        return await real(self, folders, step, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StudyRolloutSource, "submit", submit)
        yield seen


def only(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(f"run-weights/{pattern}"))
    assert found
    return found


def remove(folder: Path) -> None:
    shutil.rmtree(only(folder, "[0-9a-f]" * 16)[0])


def cut(folder: Path) -> None:
    weights = only(folder, "[0-9a-f]*/model.safetensors")[-1]
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


def forget(folder: Path) -> None:
    for epochs in only(folder, "run-*/epochs"):
        shutil.rmtree(epochs)


def spoil(folder: Path) -> None:
    only(folder, "run-*/epochs/step-*/optimizer.safetensors")[-1].write_bytes(b"half")


def misname(folder: Path) -> None:
    """As if the rows of the first round had been others."""
    for path in only(folder, "run-*/epochs/step-*/state.json"):
        state = json.loads(path.read_text())
        path.write_text(json.dumps({**state, "keys": ["another", *state["keys"][1:]]}))


@pytest.mark.parametrize("harm", [remove, cut, forget, spoil, misname])
def test_what_is_not_whole_is_trained_again(tmp_path: Path, steps: list[int], harm: Any) -> None:
    settings = {"rounds": 1}
    with pytest.raises(Killed):
        learn(tmp_path, kill=2, **settings)
    weights = {path.name: path.read_bytes() for path in only(tmp_path, "[0-9a-f]*/model.safetensors")}
    folders = only(tmp_path, "[0-9a-f]" * 16)
    trained = steps.copy()
    steps.clear()
    harm(tmp_path)
    report = learn(tmp_path, again=True, **settings)
    assert steps == trained and len(candidates(tmp_path)) == 3
    assert only(tmp_path, "[0-9a-f]" * 16) == folders and report.status == "finished"
    again = {path.name: path.read_bytes() for path in only(tmp_path, "[0-9a-f]*/model.safetensors")}
    assert again == weights  # the same bits under the same names
    steps.clear()
    learn(tmp_path, again=True, **settings)
    assert steps == []


def test_what_lies_beside_the_weights_is_left_there(tmp_path: Path, steps: list[int]) -> None:
    with pytest.raises(Killed):
        learn(tmp_path, kill=2, rounds=1)
    steps.clear()
    own = only(tmp_path, "[0-9a-f]" * 16)[0] / "model.gguf"
    own.write_bytes(b"the user's")
    learn(tmp_path, again=True, rounds=1)
    assert steps == [] and own.read_bytes() == b"the user's"
    cut(tmp_path)
    learn(tmp_path, again=True, rounds=1)
    assert steps and [path.read_bytes() for path in (tmp_path / "run-weights").rglob("model.gguf")] == [b"the user's"]


def test_other_rows_and_other_settings_are_trained(
    tmp_path: Path, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench_training.sft import SFT

    with pytest.raises(Killed):
        learn(tmp_path, kill=2, rounds=1)
    trained = steps.copy()
    steps.clear()
    with monkeypatch.context() as patch:
        patch.setattr(SFT, "choose", lambda self, rows: list(rows)[-1:])  # also of rows without a success
        learn(tmp_path, again=True, rounds=1)
    assert len(steps) == 2 * 2  # eight rows, four to an update
    steps.clear()
    learn(tmp_path, rounds=1, learning={"rate": 1e-4})  # in the same database
    assert steps == trained


def test_rows_that_change_after_the_first_round_are_told_and_then_trained(
    tmp_path: Path, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights before the second round are gone, so that resume has to begin again."""
    from workbench.errors import StoreError
    from workbench_training.sft import SFT

    with pytest.raises(Killed):
        learn(tmp_path, kill=4)
    steps.clear()
    real, count = SFT.choose, 0

    def choose(self: SFT, rows: Any) -> Any:
        nonlocal count
        count += 1
        return real(self, rows) if count <= 8 else list(rows)[-1:]

    monkeypatch.setattr(SFT, "choose", choose)
    with pytest.raises(StoreError, match="round 2 .* learned from other rows before; resume once more"):
        learn(tmp_path, again=True)
    assert steps == []
    count = 0
    assert learn(tmp_path, again=True).status == "finished" and steps


CODE = """
import sys
sys.path.insert(0, {root!r})
import torch
torch.set_num_threads(1)
from pathlib import Path
from tests.plugins.training.test_resume_record import learn
learn(Path({folder!r}))
"""


def test_killed_by_a_signal_between_epochs(tmp_path: Path, steps: list[int]) -> None:
    """kill -9 as soon as the third epoch of four is recorded."""
    learn(tmp_path / "whole")
    updates = steps.copy()
    steps.clear()
    folder = tmp_path / "killed"
    code = CODE.format(root=str(WORKFLOWS.parent), folder=str(folder))
    job = start_python(code)
    deadline = time.monotonic() + 200
    while not list(folder.glob("run-weights/run-*/epochs/step-000003")) and job.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    learn(folder, again=True)
    assert len(steps) < len(updates) / 2 and steps == updates[len(updates) - len(steps) :]
    assert candidates(folder) == candidates(tmp_path / "whole")


@pytest.mark.fault("foreign-paths")
@pytest.mark.parametrize(
    "submitted",
    [
        {"1": ["../../precious", {"no-such-file": 1}]},
        {"1": ["/etc", {"no-such-file": 1}]},
        {"1": ["..", {}]},
        {"1": ["0123456789abcdef\n", {"no-such-file": 1}]},
        {"1": "0123456789abcdef"},
        {"1": [1, {}]},
        {"1": ["0123456789abcdef", {"f": "1"}]},
        {"1": ["0123456789abcdef", 1]},
        {"1": None},
        ["0123456789abcdef"],
        7,
    ],
)
def test_a_strangers_record_moves_nothing_and_is_dropped(tmp_path: Path, submitted: Any) -> None:
    needs_torch()
    import torch

    from workbench_training.model.policy import write_checkpoint
    from workbench_training.state.resume_record import TrainingRecord

    (tmp_path / "precious").mkdir()
    (tmp_path / "runs/weights").mkdir(parents=True)
    write_checkpoint(
        tmp_path / "record", 1, {"w": {"a": torch.zeros(1)}}, {"updates": 1, "keys": ["k"], "submitted": submitted}
    )
    record = TrainingRecord(tmp_path / "record", tmp_path / "runs/weights")
    assert record.epochs == 0 and record.dropped is not None and "cannot be read" in record.dropped
    assert not (tmp_path / "record").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["precious", "runs"]


@pytest.mark.parametrize("state", [[], {"updates": "1", "keys": [], "submitted": {}}, {"updates": 1, "keys": 3}])
def test_a_record_of_another_form_is_dropped(tmp_path: Path, state: Any) -> None:
    needs_torch()
    import torch

    from workbench_training.model.policy import write_checkpoint
    from workbench_training.state.resume_record import TrainingRecord

    write_checkpoint(tmp_path / "record", 1, {"w": {"a": torch.zeros(1)}}, state)
    record = TrainingRecord(tmp_path / "record", tmp_path)
    assert record.epochs == 0 and record.dropped is not None

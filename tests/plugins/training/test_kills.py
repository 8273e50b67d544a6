"""Trainings that are killed at any time and in any phase, and resumed: they end with the weights of one that was
not."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.forking import Job, start_python
from tests.helpers.grpo_runs import SMALL, WORKFLOWS, assert_equal_candidates, candidates, kill_after, needs_torch, run
from tests.helpers.sqlite import connect

from workbench.proof import Report

KILLED = """
import sys
sys.path.insert(0, {root!r})
import torch
torch.set_num_threads(1)
from pathlib import Path
from tests.helpers.grpo_runs import run
run(Path({folder!r}), again={again}, optimizers={optimizers!r})
"""


#: What a critic remembers of earlier steps must come back, too: its buffer, its slow copy, how many steps it trained.
ARCHER = [
    {
        "grpo": {
            **SMALL,
            "algorithm": "archer",
            "critic": {"warmup": 1},
        }
    }
]


def start(folder: Path, again: bool, optimizers: Any) -> Job:
    code = KILLED.format(root=str(WORKFLOWS.parent), folder=str(folder), again=again, optimizers=optimizers)
    return start_python(code)


@pytest.mark.parametrize("optimizers", [None, pytest.param(ARCHER, marks=pytest.mark.long)], ids=["grpo", "archer"])
def test_killed_at_any_time_and_resumed_it_ends_with_the_same_weights(tmp_path: Path, optimizers: Any) -> None:
    """kill -9 while drawing the first, second and last step; the journal and the checkpoints do the rest."""
    needs_torch()
    whole = run(tmp_path / "whole", optimizers=optimizers)
    killed = tmp_path / "killed"
    again = False
    for calls in (3, 20, 37, 58):  # 16 to a step: within the first, second, third and last
        kill_after(calls, start(killed, again, optimizers), killed, seconds=100)
        again = True
    report = run(killed, again=True)
    assert_equal_candidates(killed, tmp_path / "whole")
    assert report.status == whole.status and report.as_dict()["best"]["test"] == whole.as_dict()["best"]["test"]


#: Where a kill falls in a training: in the middle of an update (some weights are changed, some are not), of writing a
#: checkpoint and a candidate, before and after a candidate is evaluated. `after`: so many times it is let through.
PHASES = """
import os, sys
sys.path.insert(0, {root!r})
import torch
torch.set_num_threads(1)
from pathlib import Path
from tests.helpers.grpo_runs import run
from tests.plugins.training.test_kills import CONSTRAINED
import workbench_training.model.policy as policy
from workbench_training.rollouts.study_rollouts import StudyRolloutSource
left = [{after}]
def die():
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), 9)
def before(cls, name):
    real = getattr(cls, name)
    def patched(*args, **more):
        die()
        return real(*args, **more)
    setattr(cls, name, patched)
def after(cls, name):
    real = getattr(cls, name)
    async def patched(*args, **more):
        found = await real(*args, **more)
        die()
        return found
    setattr(cls, name, patched)
phase = {phase!r}
if phase == "update":
    real = torch.optim.AdamW.step
    def half(self, *args, **more):
        if left[0] == 0:
            with torch.no_grad():
                self.param_groups[0]["params"][0].add_(1.0)
        die()
        return real(self, *args, **more)
    torch.optim.AdamW.step = half
elif phase == "checkpoint":
    before(policy, "save_file")  # one file of several is written
elif phase == "candidate":
    before(Path, "rename")  # all files of a folder are written, under its other name
elif phase == "submit":
    before(StudyRolloutSource, "submit")
else:
    after(StudyRolloutSource, "submit")
run(Path({folder!r}), again={again}, optimizers=CONSTRAINED)
"""
#: Multipliers, a reference and what AdamW remembers: all of it must come back.
CONSTRAINED = [{"grpo": {**SMALL, "beta": 0.01, "constraints": {"tokens": 1.0}}}]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    needs_torch()
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder, optimizers=CONSTRAINED)


def timeless(value: Any) -> Any:
    """A stored state without what depends on the order of answers: sums of seconds, estimates of prompt lengths."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in ("seconds", "longer_prompts")}
    return value


@pytest.mark.parametrize(
    ("phase", "after"), [("update", 1), ("checkpoint", 5), ("candidate", 2), ("submit", 0), ("submitted", 1)]
)
def test_killed_in_any_phase_of_training_and_resumed_it_ends_with_the_same_weights(
    phase: str, after: int, whole: tuple[Path, Report], tmp_path: Path
) -> None:
    code = PHASES.format(root=str(WORKFLOWS.parent), folder=str(tmp_path), again=False, phase=phase, after=after)
    assert start_python(code).wait(200) == -signal.SIGKILL
    report = run(tmp_path, again=True)
    assert candidates(tmp_path) == candidates(whole[0])
    assert report.as_dict()["best"]["test"] == whole[1].as_dict()["best"]["test"]
    assert report.as_dict()["spent"]["calls"] == whole[1].as_dict()["spent"]["calls"]
    states = [
        json.loads(next((f / "run-weights").glob("run-*/step-000004/state.json")).read_text())
        for f in (tmp_path, whole[0])
    ]
    states = [timeless(state) for state in states]
    for name, found in states[1]["position"].items():
        assert states[0]["position"][name] == found, name
    assert states[0] == states[1] and states[0]["state"]["multipliers"][""]["tokens"] > 0


def test_a_resumed_training_reads_no_rollout_from_before_its_checkpoint(
    whole: tuple[Path, Report], tmp_path: Path
) -> None:
    """Those of the first two steps are deleted from the journal; the checkpoint after two steps is all that is needed,
    and the run ends when the first one did, though its budget is as tight."""
    code = PHASES.format(root=str(WORKFLOWS.parent), folder=str(tmp_path), again=False, phase="update", after=2)
    assert start_python(code).wait(200) == -signal.SIGKILL
    with connect(tmp_path / "run.db") as db:
        gone = db.execute("delete from calls where lm like 'policy:%@0' or lm like 'policy:%@1'").rowcount
    assert gone == 2 * 16
    report = run(tmp_path, again=True)
    assert candidates(tmp_path) == candidates(whole[0])
    found, wanted = (r.as_dict() for r in (report, whole[1]))
    assert found["best"] == wanted["best"] | {"cost": found["best"]["cost"]}
    assert found["spent"]["calls"] == wanted["spent"]["calls"]
    assert numbered(tmp_path) == numbered(whole[0])


def numbered(folder: Path) -> list[Any]:
    with connect(folder / "run.db") as db:
        return db.execute("select seq, note from candidates order by seq").fetchall()


def test_weights_that_lost_are_deleted_and_not_needed_to_resume(whole: tuple[Path, Report], tmp_path: Path) -> None:
    """One candidate is kept. The run is killed after the first, whose weights are deleted by hand, as a better
    candidate would have them deleted: its scores are stored."""
    keep = [{"grpo": {**CONSTRAINED[0]["grpo"], "schedule": {**SMALL["schedule"], "keep": 1}}}]
    code = PHASES.format(root=str(WORKFLOWS.parent), folder=str(tmp_path), again=False, phase="update", after=2)
    code = code.replace("optimizers=CONSTRAINED", f"optimizers={keep!r}")
    assert start_python(code).wait(200) == -signal.SIGKILL
    (first,) = (tmp_path / "run-weights").glob("[0-9a-f]" * 16)
    shutil.rmtree(first)
    report = run(tmp_path, again=True)
    assert candidates(tmp_path) == candidates(whole[0])
    assert report.as_dict()["best"] | {"cost": 0} == whole[1].as_dict()["best"] | {"cost": 0}
    assert len(list((tmp_path / "run-weights").glob("[0-9a-f]" * 16))) <= 1
    assert len(list((whole[0] / "run-weights").glob("[0-9a-f]" * 16))) == 2, "by default three may stay"


def test_files_of_weights_do_not_depend_on_whether_the_hub_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity of a candidate, and so the keys of its calls, are made from all of its files."""
    needs_torch()
    from tests.helpers.tiny_lm import save
    from transformers import tokenization_utils_base

    from workbench_training.model.policy import Policy

    base, found = save(tmp_path / "base", 0), []
    for offline in (False, True):
        monkeypatch.setattr(tokenization_utils_base, "is_offline_mode", lambda offline=offline: offline)
        folder = Policy(str(base), device="cpu").save(tmp_path / str(offline))
        found.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert found[0] == found[1]

"""Runs in Weights & Biases, offline. Runs where it is installed; a scheduled job installs it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wandb")

from wandb.proto import wandb_internal_pb2

from workbench.run import Options, optimize, resume, trackers
from workbench.study import make_optimizer
from workbench_testing.simulated import Killed, SimulatedLM, SimulatedPool, write_task

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # its own warnings are not ours


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SOME_API_KEY", "canary-of-a-key")
    monkeypatch.setattr(trackers, "PATIENCE", 60.0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(folder: Path, lm: SimulatedLM) -> dict[str, Any]:
    return {
        "database": folder / "run.db",
        "optimizers": [("rewrite", make_optimizer({"rewrite": {"rounds": 2}}))],
        "pool": SimulatedPool(lm),
    }


def improve(folder: Path, lm: SimulatedLM) -> Any:
    path = write_task(folder, budget={"calls": 200}, rows=(6, 6, 6))
    path.write_text(json.dumps({**json.loads(path.read_text()), "track": "wandb"}))
    options = Options(out=str(folder / "out.yaml"), allow_unproved=True)
    return optimize(path, options=options, **settings(folder, lm))


#: The form of a file is LevelDB's log: blocks, in them pieces of records, each with checksum, length and kind.
HEAD, BLOCK, PIECE = 7, 32768, 7
WHOLE, LAST = 1, 4


def records(folder: Path) -> Iterator[Any]:
    """What the offline files hold, as `wandb sync` reads them."""
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        content, at, begun = file.read_bytes(), HEAD, b""
        while at + PIECE <= len(content):
            if (left := BLOCK - at % BLOCK) < PIECE:
                at += left
                continue
            length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
            begun += content[at + PIECE : at + PIECE + length]
            at += PIECE + length
            if kind in (WHOLE, LAST):
                yield wandb_internal_pb2.Record.FromString(begun)
                begun = b""


def points(folder: Path) -> list[dict[str, Any]]:
    found = [record.history for record in records(folder) if record.HasField("history")]
    return [{(i.key or i.nested_key[0]): json.loads(i.value_json) for i in history.item} for history in found]


def scored(folder: Path, least: int) -> list[int]:
    """The steps of its scores. Its own process writes them, a little later."""
    until = time.monotonic() + 20
    while True:
        found = [point["calls"] for point in points(folder) if "val/score" in point]
        if len(found) >= least or time.monotonic() > until:
            return found
        time.sleep(0.2)


def test_settings_scores_by_call_and_the_result_are_kept(folder: Path) -> None:
    report = improve(folder, SimulatedLM())
    assert not [w for w in report.warnings if "tracker" in w]
    (run,) = [record.run for record in records(folder) if record.HasField("run")]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert run.run_id == f"workbench-{report.run}" and run.project == "workbench"
    assert config["lm"] == "openai/simulated" and config["optimize.0.rounds"] == 2
    steps = scored(folder, 2)
    assert len(steps) >= 2 and steps == sorted(set(steps)) and steps[0] == 6
    first = next(point for point in points(folder) if "val/score" in point)
    assert first["val/score"] == report.baseline["val"]
    texts = b"".join(path.read_bytes() for path in (folder / "wandb").rglob("*.wandb"))
    assert b"report.json" in texts and b"out.yaml" in texts
    assert b"canary-of-a-key" not in texts


def test_a_resumed_run_keeps_its_name_and_repeats_no_point(folder: Path) -> None:
    lm = SimulatedLM(kill_at=18)
    with pytest.raises((Killed, BaseExceptionGroup)):
        improve(folder, lm)
    lm.kill_at = None
    before = scored(folder, 1)
    resume("last", **settings(folder, lm))
    after = scored(folder, len(before) + 1)
    assert before and len(after) > len(before) and len(after) == len(set(after))
    assert len({record.run.run_id for record in records(folder) if record.HasField("run")}) == 1

"""Whole runs with workers: the same winner, proof and bill as in one process, and what is promised when they end."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.process_executor import Clockwise, Processes

from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.plugins import plugins
from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench.runtime import member
from workbench.testing import write_task

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib/bench/promises"))
from simulated_server import SimulatedServer

TWO = {"processes": {"workers": 2}}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    table = plugins()._tables["executors"]
    monkeypatch.setitem(table, "processes", (Processes, "test"))
    monkeypatch.setitem(table, "clockwise", (Clockwise, "test"))


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer(latency=0.05) as server:
        yield server


def task(folder: Path, server: SimulatedServer, executor: Any) -> Path:
    """A small search on a simulated model behind a server."""
    folder.mkdir(parents=True, exist_ok=True)
    path = write_task(folder, budget={"calls": 1000}, seed=1, rows=(16, 16, 24))
    spec = json.loads(path.read_text())
    spec["lm"] = {"model": "openai/simulated", "api_base": server.base, "timeout": 20, "concurrency": 4}
    spec |= {"optimize": [{"bootstrap": {"trials": 4}}], "executor": executor}
    path.write_text(json.dumps(spec))
    return path


def run(
    folder: Path, server: SimulatedServer, executor: Any = "local", listener: Callable[..., None] | None = None
) -> Report:
    options = Options(out=str(folder / "out.yaml"), allow_unproved=True)
    return optimize(task(folder, server, executor), database=folder / "run.db", options=options, listener=listener)


def decided(report: Report) -> Any:
    """What a run decided and proved, and what it paid."""
    found = report.as_dict()
    spent = {key: found["spent"][key] for key in ("calls", "prompt_tokens", "completion_tokens", "usd")}
    return report.status, report.winner.hash, found["gain"], spent


def journal(folder: Path) -> set[Any]:
    with sqlite3.connect(folder / "run.db") as connection:
        return set(connection.execute("select key, role, outcome, attempts from calls where kind = 'lm'"))


def test_the_same_winner_proof_and_bill(tmp_path: Path, server: SimulatedServer) -> None:
    here, there = run(tmp_path / "here", server), run(tmp_path / "there", server, TWO)
    assert decided(here) == decided(there)
    assert journal(tmp_path / "here") == journal(tmp_path / "there")


class Killer:
    """Kills a worker now and then, by the names that a run announces."""

    def __init__(self, pause: float, most: int, how: int = signal.SIGKILL):
        self.pause, self.left, self.how = pause, most, how
        self.pids: list[int] = []
        self.lost: list[dict[str, Any]] = []
        self._last = time.monotonic()

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        if event == "worker_started":
            self.pids.append(int(str(data["worker"]).rpartition("pid ")[2].rstrip(")")))
        elif event == "worker_lost":
            self.lost.append(data)
        elif event == "call_settled" and self.left and self.pids and time.monotonic() > self._last + self.pause:
            self._last, self.left = time.monotonic(), self.left - 1
            os.kill(self.pids.pop(0), self.how)


def test_workers_that_are_killed_change_nothing(tmp_path: Path, server: SimulatedServer) -> None:
    here, killer = run(tmp_path / "here", server), Killer(0.1, 4)
    there = run(tmp_path / "there", server, TWO, killer)
    assert decided(here)[1:3] == decided(there)[1:3]
    assert {row[:3] for row in journal(tmp_path / "here")} == {row[:3] for row in journal(tmp_path / "there")}
    assert len(killer.lost) == 4
    spent = there.as_dict()["spent"]
    assert spent["unknown"] == sum(one["calls"] for one in killer.lost), "each call in flight is told, and no other"
    assert here.as_dict()["spent"]["unknown"] == 0


@pytest.mark.slow
def test_a_worker_that_is_silent_is_given_up(
    tmp_path: Path, server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "LEASE", 8.0)
    here, killer = run(tmp_path / "here", server), Killer(0.1, 1, signal.SIGSTOP)
    there = run(tmp_path / "there", server, TWO, killer)
    assert decided(here)[1:3] == decided(there)[1:3]
    assert "nothing was heard of it for 8 s" in killer.lost[0]["reason"]


def test_a_worker_with_another_clock(tmp_path: Path, server: SimulatedServer) -> None:
    seen: list[float] = []

    began = time.time()
    report = evaluate(
        task(tmp_path, server, {"clockwise": {"workers": 1}}),
        options=EvalOptions(split="val"),
        database=tmp_path / "run.db",
        listener=lambda event, data: seen.extend([data["call"].at] if event == "call_settled" else []),
    )
    assert report.n == 16 and all(began <= at <= time.time() for at in seen)


def test_a_file_that_differs_is_refused_by_name(
    tmp_path: Path, server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.run.workers._files_of", lambda task: [("tools.py", "0" * 64)])
    with pytest.raises(SpecError, match=r"tools.py is not there: share the folder") as raised:
        run(tmp_path, server, "processes")
    assert "no worker can run the rows" in str(raised.value)


def test_a_run_that_is_interrupted_and_resumed(tmp_path: Path, server: SimulatedServer) -> None:
    whole = run(tmp_path / "whole", server)
    settled = 0

    def stop(event: str, data: dict[str, Any]) -> None:
        nonlocal settled
        settled += event == "call_settled"
        if event == "call_settled" and settled == 30:
            os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "resumed"
    first = run(folder, server, TWO, stop)
    assert first.status == "interrupted"
    again = resume("last", database=folder / "run.db", options=Options(overwrite=True))
    assert decided(again) == decided(whole)

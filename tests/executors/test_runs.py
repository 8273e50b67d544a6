"""Whole runs with workers: the same winner, proof and bill as in one process, and what is promised when they end."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.process_executor import Clockwise, Processes, Slow
from tests.helpers.sqlite import connect

from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.plugins import plugins
from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench_testing import write_task
from workbench_workers import member

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib/bench/promises"))
from simulated_server import SimulatedServer

ROOT = Path(__file__).parents[2]
TWO = {"processes": {"workers": 2}}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    table = plugins()._tables["executors"]
    monkeypatch.setitem(table, "processes", (Processes, "test"))
    monkeypatch.setitem(table, "clockwise", (Clockwise, "test"))
    monkeypatch.setitem(table, "slow", (Slow, "test"))


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer(latency=0.02) as server:
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
    with connect(folder / "run.db") as connection:
        return set(connection.execute("select key, role, outcome, attempts from calls where kind = 'lm'"))


def test_the_same_winner_proof_and_bill(tmp_path: Path, server: SimulatedServer) -> None:
    here, there = run(tmp_path / "here", server), run(tmp_path / "there", server, TWO)
    assert decided(here) == decided(there)
    assert journal(tmp_path / "here") == journal(tmp_path / "there")


class Killer:
    """Kills a worker every `pause` seconds, `most` times, once all are there."""

    def __init__(self, pause: float, most: int, how: int = signal.SIGKILL, workers: int = 2):
        self.pause, self.most, self.how, self.workers = pause, most, how, workers
        self.pids: list[int] = []
        self.lost: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._kill, daemon=True)

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        if event == "worker_started":
            self.pids.append(int(str(data["worker"]).rpartition("pid ")[2].rstrip(")")))
        elif event == "call_settled" and len(self.pids) >= self.workers and not self._thread.ident:
            self._thread.start()  # calls are under way, however long the workers took to start
        elif event == "worker_lost":
            self.lost.append(data)

    def _kill(self) -> None:
        for number in range(self.most):
            time.sleep(self.pause)
            while len(self.pids) <= number:
                time.sleep(0.01)
            os.kill(self.pids[number], self.how)


@pytest.mark.slow
@pytest.mark.fault("workers-killed")
def test_workers_that_are_killed_change_nothing(tmp_path: Path, server: SimulatedServer) -> None:
    server.latency = 0.2
    here, killer = run(tmp_path / "here", server), Killer(0.37, 4)
    there = run(tmp_path / "there", server, TWO, killer)
    assert decided(here)[1:3] == decided(there)[1:3]
    assert {row[:3] for row in journal(tmp_path / "here")} == {row[:3] for row in journal(tmp_path / "there")}
    assert len(killer.lost) == 4
    spent = there.as_dict()["spent"]
    assert 0 < spent["unknown"] == sum(one["calls"] for one in killer.lost), "each call in flight is told, and no other"
    assert here.as_dict()["spent"]["unknown"] == 0


@pytest.mark.slow
@pytest.mark.fault("workers-silent")
def test_a_worker_that_is_silent_is_given_up(
    tmp_path: Path, server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "LEASE", 8.0)
    here, killer = run(tmp_path / "here", server), Killer(0.4, 1, signal.SIGSTOP)
    there = run(tmp_path / "there", server, TWO, killer)
    assert decided(here)[1:3] == decided(there)[1:3]
    assert "nothing was heard of it for 8 s" in killer.lost[0]["reason"]


@pytest.mark.fault("workers-clock")
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


@pytest.mark.fault("workers-unfit")
@pytest.mark.parametrize("executor", ["processes", "slow"])
def test_a_file_that_differs_is_refused_by_name(
    executor: str, tmp_path: Path, server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench_workers.executor.files_of", lambda task: [("tools.py", "0" * 64)])
    with pytest.raises(SpecError, match=r"tools.py is not there: share the folder") as raised:
        run(tmp_path, server, executor)
    assert "no worker can run the rows" in str(raised.value)


DRIVER = "import sys; from tests.executors.test_runs import drive; drive(sys.argv[1])"


def drive(folder: str) -> None:
    """The driver of a test, in a process of its own."""
    plugins()._tables["executors"]["processes"] = (Processes, "test")
    options = Options(out=f"{folder}/out.yaml", allow_unproved=True)
    optimize(Path(folder) / "workflow.yaml", database=f"{folder}/run.db", options=options)


@pytest.mark.fault("driver-killed")
def test_a_driver_that_is_killed_and_resumed(tmp_path: Path, server: SimulatedServer) -> None:
    whole, folder = run(tmp_path / "whole", server), tmp_path / "killed"
    task(folder, server, TWO)
    server.latency = 0.05
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder)], cwd=ROOT)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.1)
        with suppress(sqlite3.Error):  # not made yet
            if len(journal(folder)) >= 30:
                break
    driver.kill()
    driver.wait()
    workers = ["pgrep", "-f", f"workbench_workers.join.*{driver.pid}"]
    again = resume("last", database=folder / "run.db", options=Options(overwrite=True))
    assert decided(again)[1:3] == decided(whole)[1:3]
    spent, before = again.as_dict()["spent"], whole.as_dict()["spent"]
    assert spent["calls"] == before["calls"] and spent["unknown"] <= 8
    assert subprocess.run(workers, capture_output=True).stdout == b"", "workers end with their driver"


@pytest.mark.fault("workers-gone")
def test_no_worker_can_be_started(tmp_path: Path, server: SimulatedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: Processes, number: int) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('no room here')"]

    monkeypatch.setattr(Processes, "command", lost)
    monkeypatch.setattr(Processes, "seconds", 0.3)
    report = run(tmp_path, server, TWO)
    assert report.status == "failed" and report.resumable and server.requests == 0
    assert "there is no worker left: " in str(report.error) and "worker 0 has not joined within 0.3 s" in str(
        report.error
    )


@pytest.mark.fault("workers-poison")
def test_a_row_that_ends_each_worker_fails_by_itself(tmp_path: Path, server: SimulatedServer) -> None:
    (tmp_path / "poison.py").write_text(
        "import os, signal\n\n\ndef drink(text):\n"
        "    if text.startswith('val row 3:'):\n        os.kill(os.getpid(), signal.SIGKILL)\n    return text\n"
    )
    file = task(tmp_path, server, {"processes": {"workers": 2}})
    value = json.loads(file.read_text())
    value["nodes"] = {"taste": {"tool": "python:poison.py:drink", "output": "tasted"}, **value["nodes"]}
    file.write_text(json.dumps(value))
    report = evaluate(file, options=EvalOptions(split="val"), database=tmp_path / "run.db").as_dict()
    assert report["failures"] == {"worker": 1}, report


@pytest.mark.slow
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

"""Kill and resume, and budgets under faults: the small tier of contrib/bench/promises/kill_resume.py and
budget_ceiling.py."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.killed_runs import OPTIMIZE, call, command, start

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib" / "bench" / "promises"))

import budget_ceiling
import kill_resume
from simulated_server import FAULTS, SimulatedServer

from workbench.errors import StoreError
from workbench.store import RunLock, Store


@pytest.fixture(scope="module", autouse=True)
def _forked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kill_resume, "start", start)
        patch.setattr(budget_ceiling, "call", call)
        yield


@pytest.fixture(scope="module")
def server():
    with SimulatedServer(latency=0.005) as running:
        yield running


@pytest.fixture(scope="module")
def whole(server: SimulatedServer, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """A run that was never killed."""
    folder = tmp_path_factory.mktemp("whole")
    kill_resume.prepare(folder, server.base)
    before = server.requests
    report = kill_resume.finish(folder)
    assert server.requests - before == report["spent"]["calls"] and report["spent"]["unknown"] == 0
    return report


@pytest.mark.fault("killed")
@pytest.mark.slow
def test_random_kills_change_nothing(server: SimulatedServer, whole: dict, tmp_path: Path) -> None:
    rng, done, runs = random.Random(7), 0, 0
    while done < 20:
        folder, before, runs = tmp_path / str(runs), server.requests, runs + 1
        kill_resume.prepare(folder, server.base)
        kills = kill_resume.random_kills(folder, rng, 20 - done, seconds=0.6)
        kill_resume.check(folder, server, before, kills, whole)
        done += kills


@pytest.mark.fault("killed")
@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        "commit-before:9",
        pytest.param("commit-after:9", marks=pytest.mark.slow),
        pytest.param("send-before:5", marks=pytest.mark.slow),
        pytest.param("send-after:5", marks=pytest.mark.slow),
        pytest.param("evaluated:2", marks=pytest.mark.slow),
        pytest.param("report-before:1", marks=pytest.mark.slow),
        pytest.param("replace-before:1", marks=pytest.mark.slow),
        pytest.param("replace-after:1", marks=pytest.mark.slow),
        pytest.param("report-after:1", marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_a_named_step_changes_nothing(
    step: str, server: SimulatedServer, whole: dict, tmp_path: Path
) -> None:
    kill_resume.prepare(tmp_path, server.base)
    before, kills = server.requests, 0
    for _ in range(2):  # once in the first run, once while resuming
        process = start(tmp_path, kill_resume.begun(tmp_path), step)
        process.communicate(timeout=120)
        kills += process.returncode == -signal.SIGKILL
    assert kills, "the step was never reached"
    kill_resume.check(tmp_path, server, before, kills, whole)


@pytest.mark.fault("signals")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("moment", range(5))
def test_a_signal_ends_the_run_in_order_and_it_can_be_resumed(
    moment: int, name: str, server: SimulatedServer, whole: dict, tmp_path: Path
) -> None:
    kill_resume.prepare(tmp_path, server.base)
    process = command(tmp_path, *OPTIMIZE)
    while not kill_resume.begun(tmp_path):
        time.sleep(0.05)
    time.sleep(0.08 * moment)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=10)
    if process.returncode == 0:
        pytest.skip("the run was over before the signal")
    assert process.returncode == 130, err
    assert "workbench resume" in out + err  # err: before the run catches signals itself
    assert kill_resume.comparable(kill_resume.finish(tmp_path)) == kill_resume.comparable(whole)


@pytest.mark.fault("odd-usage")
@pytest.mark.slow
@pytest.mark.parametrize("ceiling", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 10, 60))])
def test_no_request_above_the_ceiling_with_all_faults(ceiling: int, tmp_path: Path) -> None:
    seen, report = budget_ceiling.run(tmp_path, ceiling, dict.fromkeys(FAULTS, 0.04), seed=ceiling)
    assert seen <= ceiling
    assert report["spent"]["calls"] <= ceiling and report["status"] in (
        ["budget"] if ceiling > 3 else ["budget", "failed"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_no_request_above_the_ceiling_with_one_fault(kind: str, tmp_path: Path) -> None:
    seen, _ = budget_ceiling.run(tmp_path, 30, {kind: 0.1}, seed=3)
    assert seen <= 30


def test_a_second_process_is_kept_off_a_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db")
    try:
        with RunLock(store, "abc"), pytest.raises(StoreError, match="in use by process"), RunLock(store, "abc"):
            pass
        with RunLock(store, "abc"):
            pass
    finally:
        store.close()

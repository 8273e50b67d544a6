"""Rows in tasks that submitit submits: its local executor stands for Slurm, as its authors test with it."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.executors.test_runs import Killer, decided, journal, run

from workbench.errors import SpecError
from workbench_testing import executor_checks
from workbench_workers import Executor

pytest.importorskip("submitit")
from simulated_server import SimulatedServer

from workbench_slurm.executor import Slurm

pytestmark = pytest.mark.slow
TWO = {"slurm": {"workers": 2, "cluster": "local", "host": "127.0.0.1"}}


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer(latency=0.05) as server:
        yield server


def make() -> Executor:
    return Slurm.model_validate(TWO["slurm"])


@pytest.mark.parametrize("check", executor_checks(), ids=lambda check: check.__name__)
def test_the_contract_of_an_executor(check: Callable[[Any], None]) -> None:
    check(make)


def test_the_same_winner_proof_and_bill(tmp_path: Path, server: SimulatedServer) -> None:
    here, there = run(tmp_path / "here", server), run(tmp_path / "there", server, TWO)
    assert decided(here) == decided(there)
    assert journal(tmp_path / "here") == journal(tmp_path / "there")
    assert stat.S_IMODE((tmp_path / "there" / "slurm").stat().st_mode) == 0o700


def test_a_task_that_is_killed_is_submitted_again(tmp_path: Path, server: SimulatedServer) -> None:
    here, killer = run(tmp_path / "here", server), Killer(0.3, 2)
    there = run(tmp_path / "there", server, TWO, killer)
    assert decided(here)[1:3] == decided(there)[1:3]
    assert len(killer.lost) == 2


def test_without_slurm_the_file_is_refused(tmp_path: Path, server: SimulatedServer) -> None:
    with pytest.raises(SpecError, match="nothing can be submitted here"):
        run(tmp_path, server, "slurm")
    assert server.requests == 0

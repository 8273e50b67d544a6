"""Rows on Ray: the contract of executors, whole runs, shipped files, and what is refused by name."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.executors.test_runs import Killer, decided, journal, run, task

from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.runtime import SandboxChoice
from workbench.spec import PolicySpec, lm_spec
from workbench_testing import executor_checks
from workbench_workers import Executor, WorkerLost, WorkerSetup

ray: Any = pytest.importorskip("ray")
from simulated_server import SimulatedServer  # noqa: E402

from workbench_ray.executor import Ray  # noqa: E402

pytestmark = pytest.mark.slow
TWO = {"ray": {"workers": 2, "num_cpus": 0.5}}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[str]:
    context = ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=200_000_000)
    yield context.address_info["address"]
    ray.shutdown()


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer(latency=0.1) as server:
        yield server


def make() -> Executor:
    return Ray.model_validate({"workers": 2, "num_cpus": 0.5})


@pytest.mark.parametrize("check", executor_checks(), ids=lambda check: check.__name__)
def test_the_contract_of_an_executor(check: Callable[[Any], None]) -> None:
    check(make)


def test_the_same_winner_proof_and_bill(tmp_path: Path, server: SimulatedServer) -> None:
    here, there = run(tmp_path / "here", server), run(tmp_path / "there", server, TWO)
    assert decided(here) == decided(there)
    assert journal(tmp_path / "here") == journal(tmp_path / "there")


@pytest.mark.fault("workers-killed")
def test_workers_that_are_killed_change_nothing(tmp_path: Path, server: SimulatedServer) -> None:
    here, killer = run(tmp_path / "here", server), Killer(0.6, 3)
    there = run(tmp_path / "there", server, TWO, killer)
    assert decided(here)[1:3] == decided(there)[1:3]
    assert len(killer.lost) == 3
    assert there.as_dict()["spent"]["unknown"] == sum(one["calls"] for one in killer.lost)


@pytest.mark.fault("workers-large")
def test_a_result_of_fifty_megabytes(tmp_path: Path) -> None:
    """Larger than a quarter of the object store, and several at once fill it. What is kept of it is a tool's most."""
    (tmp_path / "big.py").write_text("def big(text):\n    return text[-1] * 50_000_000\n")
    (tmp_path / "score.py").write_text(
        "def score(example, prediction, trace): return 9e5 < len(prediction['answer']) < 1.1e6"
    )
    rows = [{"text": f"row {i}"} for i in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = tmp_path / "workflow.yaml"
    value = {
        "name": "big",
        "lm": "bundled/nano",
        "data": {"val": "rows.jsonl"},
        "metric": "python:score.py:score",
        "nodes": {"make": {"tool": "python:big.py:big", "output": "answer"}},
        "executor": TWO,
    }
    file.write_text(json.dumps(value))
    report = evaluate(file, options=EvalOptions(split="val"), database=tmp_path / "run.db")
    assert report.score == 1.0 and report.n == 6


ELSEWHERE = """
from dataclasses import replace
from pathlib import Path
from workbench.cli import main
from workbench_ray.executor import Ray

connect = Ray._connect

def connect_from_elsewhere(self):
    # Workers of this machine have the folder; so they are told another one, as on a machine that does not have it.
    connect(self)
    self._setup = replace(self._setup, base=Path("/nowhere"))

Ray._connect = connect_from_elsewhere
main()
"""


def test_files_are_shipped_to_a_machine_without_them(tmp_path: Path, server: SimulatedServer, cluster: str) -> None:
    (tmp_path / "shout.py").write_text("def shout(text):\n    return text.upper()\n")
    file = task(tmp_path, server, {"ray": {"workers": 1, "num_cpus": 0.5, "address": cluster}})
    value = json.loads(file.read_text())
    value["nodes"] = {"loud": {"tool": "python:shout.py:shout", "output": "loud"}, **value["nodes"]}
    file.write_text(json.dumps(value))
    command = [sys.executable, "-c", ELSEWHERE, "eval", str(file), "--db", str(tmp_path / "run.db"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["failures"] == {}


@pytest.mark.fault("workers-unfit")
def test_a_machine_without_workbench_is_refused_by_name(tmp_path: Path, server: SimulatedServer) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('workbench', 'workbench_ray'):\n"
        "            raise ModuleNotFoundError(f\"No module named '{name}'\", name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
    )
    settings = {"workers": 1, "num_cpus": 0.5, "runtime_env": {"env_vars": {"PYTHONPATH": str(tmp_path)}}}
    with pytest.raises(SpecError, match=r"workbench [0-9.]+ is not installed on its machine"):
        run(tmp_path / "run", server, {"ray": settings})


@pytest.mark.fault("workers-gone")
def test_no_cluster_at_an_address(tmp_path: Path, server: SimulatedServer) -> None:
    command = [sys.executable, "-c", "from workbench.cli import main; main()", "eval"]
    file = task(tmp_path, server, "local")
    given = ["--executor", "ray", "--address", "127.0.0.1:1", "--db", str(tmp_path / "run.db")]
    done = subprocess.run([*command, str(file), *given], capture_output=True, text=True, timeout=200)
    assert done.returncode == 2 and "there is no Ray cluster at 127.0.0.1:1" in done.stderr, done.stderr
    assert server.requests == 0


def test_what_a_ray_on_this_machine_can_never_place_is_refused() -> None:
    ray_here = Ray.model_validate({"workers": 2, "num_gpus": 1, "memory": 1})
    ray_here._check_room({"GPU": 2.0, "memory": 2.0 * 2**30})
    with pytest.raises(SpecError, match="2 workers need 2 of GPU, and here are 1"):
        ray_here._check_room({"GPU": 1.0, "memory": 2.0 * 2**30})
    with pytest.raises(SpecError, match="2 workers need 2 of memory, and here are 1.5"):
        ray_here._check_room({"GPU": 2.0, "memory": 1.5 * 2**30})


def test_what_was_packed_for_shipping_is_deleted(tmp_path: Path, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    one = Ray.model_validate({"address": cluster})
    one._setup = WorkerSetup(tmp_path, lm_spec("openai/m"), {}, PolicySpec(), 60.0, SandboxChoice())
    with pytest.raises(SpecError, match="no Ray cluster"):  # this process is connected already
        one._connect()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.fault("workers-gone")
def test_a_head_that_is_gone_is_not_asked_for_workers(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def refuse(address: str | None) -> None:
        asked.append(address)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr("workbench_ray.executor._check_listens", refuse)
    monkeypatch.setattr("workbench_ray.executor._HEAD_BACK", 0.1)
    with pytest.raises(WorkerLost, match="worker 0: the cluster's head is gone"):
        asyncio.run(Ray.model_validate({}).start(0))
    assert len(asked) > 1 and {*asked} == {cluster}

"""Runs in MLflow, in a store on SQLite. Runs where MLflow is installed; a scheduled job installs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlflow")

from mlflow.tracking import MlflowClient

from workbench.run import Options, optimize, resume, trackers
from workbench.study import make_optimizer
from workbench_testing.simulated import Killed, SimulatedLM, SimulatedPool, write_task

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # MLflow's own warnings are not ours


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("SOME_API_KEY", "canary-of-a-key")
    monkeypatch.setattr(trackers, "PATIENCE", 60.0)  # its first import and its tables take some seconds
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
    path.write_text(json.dumps({**json.loads(path.read_text()), "track": "mlflow"}))
    options = Options(out=str(folder / "out.yaml"), allow_unproved=True)
    return optimize(path, options=options, **settings(folder, lm))


def only_run() -> Any:
    client = MlflowClient()
    experiment = client.get_experiment_by_name("workbench")
    (found,) = client.search_runs([experiment.experiment_id])
    return found


def test_settings_scores_by_call_and_the_result_are_kept(folder: Path) -> None:
    report = improve(folder, SimulatedLM())
    assert not [w for w in report.warnings if "tracker" in w]
    run, client = only_run(), MlflowClient()
    assert run.info.status == "FINISHED" and run.data.tags["workbench.run"] == report.run
    assert run.data.params["lm"] == "openai/simulated" and run.data.params["rows.test"] == "6"
    assert run.data.params["optimize.0"] == "rewrite" and run.data.params["optimize.0.rounds"] == "2"
    scores = client.get_metric_history(run.info.run_id, "val/score")
    steps = [point.step for point in scores]
    assert len(scores) >= 2 and steps == sorted(set(steps)) and steps[0] == 6
    assert scores[0].value == report.baseline["val"]
    assert run.data.metrics["val/best"] == max(point.value for point in scores)
    assert run.data.metrics["test/baseline"] == report.baseline["test"]["score"]
    assert run.data.metrics["spent/calls"] == report.spent["calls"]
    names = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
    assert {"report.json", "out.yaml"} <= names
    kept = Path(client.download_artifacts(run.info.run_id, "report.json"))
    assert json.loads(kept.read_text())["run"] == report.run
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"canary-of-a-key" in path.read_bytes()]


def test_a_resumed_run_goes_on_in_its_record_without_a_point_twice(folder: Path) -> None:
    lm = SimulatedLM(kill_at=18)
    with pytest.raises((Killed, BaseExceptionGroup)):
        improve(folder, lm)
    lm.kill_at = None
    before = MlflowClient().get_metric_history(only_run().info.run_id, "val/score")
    assert before
    report = resume("last", **settings(folder, lm))
    run = only_run()
    after = MlflowClient().get_metric_history(run.info.run_id, "val/score")
    steps = [point.step for point in after]
    assert len(after) > len(before) and len(steps) == len(set(steps))
    assert run.info.status == "FINISHED" and report.status == "finished"


def test_a_server_that_is_away_costs_the_run_only_its_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "PATIENCE", 3.0)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    report = improve(folder, SimulatedLM())
    assert report.status == "finished" and len([w for w in report.warnings if "tracker 'mlflow'" in w]) == 1

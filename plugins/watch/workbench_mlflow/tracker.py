"""A run as a run of MLflow. Its place is MLflow's own setting: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench_kit.logs import ScoreTracker

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_TAG = "workbench.run"
#: MLflow's own limit on a parameter's value.
_LONGEST = 6000
_BATCH = 100


class MLflow(ScoreTracker):
    """Logs a run to MLflow, as one run even if it is resumed."""

    needs = ("mlflow", "watch[mlflow]")

    def begin(self, resumed: bool) -> bool:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self.client: MlflowClient = MlflowClient()
        experiment = self._experiment()
        found = self.client.search_runs([experiment], f"tags.`{_TAG}` = '{self.run.run}'", max_results=1)
        if found:
            self.id = found[0].info.run_id
            self.client.update_run(self.id, "RUNNING")
            return True
        tags = {_TAG: self.run.run, "workbench.kind": self.run.kind}
        self.id = self.client.create_run(experiment, run_name=f"{self.run.name} {self.run.run}", tags=tags).info.run_id
        settings = [Param(name, str(value)[:_LONGEST]) for name, value in self.run.settings.items()]
        for start in range(0, len(settings), _BATCH):
            self.client.log_batch(self.id, params=settings[start : start + _BATCH])
        return False

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "workbench"
        if (known := self.client.get_experiment_by_name(name)) is None:
            try:
                return self.client.create_experiment(name)
            except MlflowException:  # another run was faster
                known = self.client.get_experiment_by_name(name)
                if known is None:
                    raise
        return known.experiment_id

    def log(self, numbers: Mapping[str, float], calls: int) -> None:
        from mlflow.entities import Metric

        at = int(time.time() * 1000)
        told = [Metric(name, value, at, calls) for name, value in numbers.items() if math.isfinite(value)]
        self.client.log_batch(self.id, metrics=told)

    def finish(self, status: str, numbers: Mapping[str, float], files: Sequence[Path], report: str) -> None:
        self.log(numbers, int(numbers.get("spent/calls", 0)))
        self.client.set_tag(self.id, "workbench.status", status)
        self.client.log_text(self.id, report, "report.json")
        for file in files:
            self.client.log_artifact(self.id, str(file))
        ended = {"interrupted": "KILLED", "failed": "FAILED"}
        self.client.set_terminated(self.id, ended.get(status, "FINISHED"))

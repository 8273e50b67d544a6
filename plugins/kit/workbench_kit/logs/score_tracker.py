"""The base of trackers that store scores and settings, not traces: MLflow and Weights & Biases."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.run import RunInfo, Tracker


class ScoreTracker(Tracker):
    """Turns a run's events into numbers by step, and stores the final report and result files.

    The step is the number of calls used. A resumed run repeats its events from the start: if the record is continued,
    they are skipped until a new call is paid.
    """

    def __init__(self, run: RunInfo):
        super().__init__(run)
        self._replaying, self._best = False, float("-inf")

    @abstractmethod
    def begin(self, resumed: bool) -> bool:
        """Open the record, or continue the run's record. Returns True if it is continued."""

    @abstractmethod
    def log(self, numbers: Mapping[str, float], calls: int) -> None:
        """Record numbers at a step."""

    @abstractmethod
    def finish(self, status: str, numbers: Mapping[str, float], files: Sequence[Path], report: str) -> None:
        """Close the record. report: the final report as JSON. files: those written by the run."""

    def run_started(self, resumed: bool) -> None:
        self._replaying = self.begin(resumed) and resumed

    def call_settled(self, call: Any) -> None:
        self._replaying &= call.cached

    def candidate_evaluated(self, evaluation: Any, accepted: bool, calls: int) -> None:
        if not evaluation.complete:
            return
        self._best = max(self._best, evaluation.score)
        numbers = {f"val/{name}": value for name, value in evaluation.objectives.items()}
        if not self._replaying:
            self.log({**numbers, "val/best": self._best, "val/accepted": float(accepted)}, calls)

    def optimizer_told(self, optimizer: str, message: str, figures: Mapping[str, Any], calls: int) -> None:
        numbers = {f"{optimizer}/{name}": value for name, value in _numbers(figures).items()}
        if numbers and not self._replaying:
            self.log(numbers, calls)

    def run_finished(self, report: Any) -> None:
        found = report.as_dict()
        files = [Path(found[key]) for key in ("workflow", "unproved") if _is_file(found.get(key))]
        numbers = {f"spent/{k}": v for k, v in _numbers(found["spent"]).items()}
        if "gain" in found:
            numbers |= {f"gain/{k}": v for k, v in _numbers(found["gain"]).items()}
            low, high = found["gain"]["ci95"]
            sides = {side: found[side]["test"]["score"] for side in ("baseline", "best")}
            numbers |= {"gain/low": low, "gain/high": high}
            numbers |= {f"test/{side}": score for side, score in sides.items() if score is not None}
        elif isinstance(found.get("score"), int | float):
            numbers[f"{found['split']}/score"] = float(found["score"])
        self.finish(report.status, numbers, files, json.dumps(found, indent=1, default=str))


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {str(k): float(v) for k, v in values.items() if isinstance(v, bool | int | float)}


def _is_file(path: Any) -> bool:
    return isinstance(path, str) and path.endswith((".yaml", ".yml")) and Path(path).is_file()

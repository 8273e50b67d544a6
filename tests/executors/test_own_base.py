"""An executor without the base of `workbench_workers`: core asks for what runs rows, and for lines of an estimate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from tests.helpers.scripted import Script

from workbench.evaluation import EvalOptions, evaluate
from workbench.plugins import plugins
from workbench.run import estimate, prepare
from workbench.runtime import Draw, Program, RowRunner, Runtime
from workbench.task import Example, Task
from workbench.workflow import ExampleRun, Workflow
from workbench_testing import write_task


class Beside:
    """Runs rows by a runtime of its own, which pays as the run does."""

    def __init__(self, runtime: Runtime, heard: list[str]):
        self._runtime, self._heard = replace(runtime, elsewhere=None), heard

    async def open(self) -> None:
        self._heard.append("opened")

    async def run(self, workflow: Workflow, example: Example, draw: Draw) -> ExampleRun:
        self._heard.append("row")
        return await Program(workflow, self._runtime).run(example, draw)

    def warnings(self) -> list[str]:
        return ["rows ran beside"]

    def kept_state(self) -> list[str]:
        return []

    async def aclose(self) -> None:
        self._heard.append("closed")


class Own(BaseModel):
    """An executor of a stranger."""

    heard: ClassVar[list[str]] = []
    desks: int = 1

    def make_crew(self, task: Task, runtime: Runtime, tell: Callable[..., None]) -> RowRunner:
        return Beside(runtime, self.heard)

    def describe(self, task: Task, minutes: float | None) -> Iterator[str]:
        yield f"{self.desks} desks."


def test_an_executor_needs_no_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugins()._tables["executors"], "own", (Own, "test"))
    monkeypatch.setattr(Own, "heard", heard := list[str]())
    value = json.loads(write_task(tmp_path, budget={"calls": 100}, seed=1, rows=(4, 6, 4)).read_text())

    def found(executor: Any) -> Any:
        path = tmp_path / "here.yaml"
        path.write_text(json.dumps({**value, "executor": executor}))
        _, _, task, optimizers = prepare(path)
        assert ("3 desks." in estimate(task, optimizers)["lines"]) == (executor != "local")
        pool: Any = Script(lambda request: "yes")
        return evaluate(path, options=EvalOptions(split="val"), database=tmp_path / "run.db", pool=pool)

    here, there = found("local"), found({"own": {"desks": 3}})
    assert (there.n, there.score, there.failures) == (here.n, here.score, here.failures)
    assert there.spent["calls"] == here.spent["calls"] == heard.count("row") == 6 and heard[-1] == "closed"
    assert "rows ran beside" in there.warnings and "rows ran beside" not in here.warnings

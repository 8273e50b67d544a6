"""Runs whose metric asks a model, and ceilings on minutes: what the proof needs is set aside, a stop makes no zeros."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM

from workbench import Optimizer, Patch, Study, Workflow
from workbench.lm import Request, Response
from workbench.run import Options, optimize, prepare, resume
from workbench.run.cost_estimate import budget_warnings

Say = Callable[[Request], Any]


class Saying(PlantedLM):
    """Answers what a function of the request says; a coroutine is waited for."""

    def __init__(self, say: Say):
        super().__init__(lambda r: 1.0)
        self.say = say

    async def complete(self, request: Request) -> Response:
        self.requests += 1
        found = self.say(request)
        text = await found if asyncio.iscoroutine(found) else found
        return Response(text, "stop", 5, 1, 0.0)


class Busy(Optimizer):
    """Tries one wording after the other, as long as there is a budget."""

    async def optimize(self, study: Study) -> Workflow:
        number = 0
        while True:
            number += 1
            await study.evaluate(study.workflow.patched(Patch({"nodes.s.instructions": f"v{number}"})))


def write(folder: Path, test: int = 8, **spec: Any) -> Path:
    for name, count in (("train", 4), ("val", 8), ("test", test)):
        rows = [{"text": f"{name} {i}", "label": "a"} for i in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "w.yaml").write_text(
        json.dumps(
            {
                "name": "judged",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
                "concurrency": 8,
                "data": {n: f"{n}.jsonl" for n in ("train", "val", "test")},
                "metric": "judge(label)",
                "nodes": {"s": {"predict": "text -> label"}},
                "budget": {"calls": 200},
                **spec,
            }
        )
    )
    return folder / "w.yaml"


def judging(request: Request) -> bool:
    return "You grade an answer" in str(request.messages)


def test_the_calls_of_a_judge_are_set_aside_for_the_proof(tmp_path: Path) -> None:
    def say(request: Request) -> str:
        if judging(request):
            return "fine\nscore: " + ("9" if "better" in str(request.messages) else "5")
        return "better" if "v2" in str(request.messages) else "plain"

    file = write(tmp_path, test=20)
    report = optimize(
        file,
        database=tmp_path / "r.db",
        pool=Saying(say),
        optimizers=[("busy", Busy())],
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    assert report.status == "budget" and report.test_rows == 20 and report.judge is not None
    assert report.judge.ci95[0] > 0 and not report.gain_shown
    assert budget_warnings(prepare(file, [("budget.calls", 95)])[2]) and not budget_warnings(
        prepare(file, [("budget.calls", 96)])[2]
    )


@pytest.mark.fault("signals")
def test_to_stop_while_a_judge_is_asked_makes_no_zeros(tmp_path: Path) -> None:
    """The signal comes with the first answer of the test; no judge has been asked about it yet."""
    armed = True

    async def say(request: Request) -> str:
        nonlocal armed
        if judging(request):
            return "good.\nscore: 10"
        await asyncio.sleep(0.05)
        if armed and "test 7" in str(request.messages):
            armed = False
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.05)
        return "a"

    file, lm = write(tmp_path, proof={"when_unchanged": "test"}), Saying(say)
    options = Options(out=str(tmp_path / "o.yaml"))
    stopped = optimize(file, database=tmp_path / "r.db", pool=lm, optimizers=[], options=options)
    assert stopped.status == "interrupted" and stopped.best["test"]["score"] is None
    again = resume("last", database=tmp_path / "r.db", pool=lm, optimizers=[], options=options)
    assert again.status == "finished" and again.best["test"] == {"score": 1.0, "n": 8} and not again.failures


@pytest.mark.slow
def test_minutes_are_set_aside_for_the_proof(tmp_path: Path) -> None:
    async def say(request: Request) -> str:
        await asyncio.sleep(0.3)
        return "a" if "v2" in str(request.messages) else "b"

    file = write(tmp_path, metric="exact_match(label)", budget={"minutes": 0.1})
    report = optimize(
        file,
        database=tmp_path / "r.db",
        pool=Saying(say),
        optimizers=[("busy", Busy())],
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    assert report.status == "budget" and report.test_rows == 8 and report.gain_shown


def test_a_metric_that_raises_a_cancellation_fails_its_row_alone(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import asyncio\ndef met(example, prediction, trace):\n"
        "    if example['text'] in ('val 1', 'val 2'):\n        raise asyncio.CancelledError\n    return 1.0\n"
    )
    report = optimize(
        write(tmp_path, metric="python:m.py:met", proof={"when_unchanged": "test"}),
        database=tmp_path / "r.db",
        pool=Saying(lambda r: "a"),
        optimizers=[],
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    assert report.status == "finished" and report.baseline["val"] == 0.75 and report.baseline["test"]["score"] == 1.0

"""`cache: true`: the same run again pays nothing and ends the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, demos_of, plant

from workbench.evaluation import EvalOptions, evaluate
from workbench.inference import predict_file
from workbench.lm import Request, Response
from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench.store import Store


def skill(request: Request) -> float:
    return min(0.4 + 0.1 * len(demos_of(request)), 0.9)


def lasting(report: Report) -> dict[str, Any]:
    """A report without what belongs to the run that paid."""
    kept = ("baseline", "best", "gain", "candidates", "changes", "status")
    return {name: value for name, value in json.loads(json.dumps(report.as_dict())).items() if name in kept}


def sampled(folder: Path, calls: int, **spec: Any) -> tuple[Report, PlantedLM]:
    nodes = {
        "sort": {
            "predict": "text -> label: Literal['a', 'b', 'c', 'd']",
            "instructions": "Plain.",
            "samples": 2,
            "decoding": {"temperature": 0.9},
        }
    }
    return plant(folder, skill, {"random": {"trials": 3}}, calls=calls, nodes=nodes, **spec)


@pytest.mark.parametrize("calls", [2000, 330], ids=["to the end", "to the ceiling"])
def test_friction_14_the_same_optimize_again_pays_nothing_and_ends_the_same(calls: int, tmp_path: Path) -> None:
    """Its sampled calls, too; and also where the first run ended at its budget."""
    first, lm = sampled(tmp_path, calls, cache=True)
    assert lm.requests > 100 and first.spent["reused"]["calls"] == 0
    again, lm = sampled(tmp_path, calls, cache=True)
    assert lm.requests == 0 and (again.spent["calls"], again.spent["usd"]) == (0, 0)
    assert again.spent["reused"]["calls"] == first.spent["calls"]
    assert again.spent["reused"]["usd"] == pytest.approx(first.spent["usd"])
    proved = lasting(again)["gain"]["p"]
    assert proved == lasting(first)["gain"]["p"] and lasting(again)["best"] == lasting(first)["best"]
    assert any("were reused from earlier runs, where they cost $" in line for line in again.lines())


def test_friction_14_without_the_setting_runs_are_independent(tmp_path: Path) -> None:
    first, _ = sampled(tmp_path, 2000)
    again, lm = sampled(tmp_path, 2000)
    assert lm.requests == first.spent["calls"] > 0 == again.spent["reused"]["calls"]


def test_a_larger_budget_pays_only_for_what_is_new(tmp_path: Path) -> None:
    first, lm = sampled(tmp_path, 330, cache=True)
    more, later = sampled(tmp_path, 2000, cache=True)
    assert more.spent["reused"]["calls"] > 0.5 * lm.requests
    assert more.candidates >= first.candidates and more.spent["calls"] == later.requests


def test_a_resumed_run_with_a_cache_is_replayed_as_it_was(tmp_path: Path) -> None:
    sampled(tmp_path, 2000, cache=True)
    again, _ = sampled(tmp_path, 2000, cache=True)
    database = tmp_path / "run.db"
    store = Store(database)
    store.execute("delete from calls where run_id = 1")
    store.execute("update runs set status = 'interrupted' where run = ?", again.run)
    store.close()
    resumed = resume(again.run, database=database, pool=(lm := PlantedLM(skill)), options=Options())
    assert lm.requests == 0 and lasting(resumed) == lasting(again)
    assert {k: v for k, v in resumed.spent.items() if k != "seconds"} == {
        k: v for k, v in again.spent.items() if k != "seconds"
    }


def test_eval_takes_what_optimize_paid_for_also_beyond_its_budget(tmp_path: Path) -> None:
    plant(tmp_path, skill, {"random": {"trials": 1}}, calls=2000)
    options = EvalOptions([("cache", True), ("budget.calls", 1)], "val")
    lm, database = PlantedLM(skill), tmp_path / "run.db"
    found = evaluate(tmp_path / "workflow.yaml", options=options, database=database, pool=lm)
    assert lm.requests == 0 and found.spent["reused"]["calls"] == 24 and found.spent["calls"] == 0
    assert any("24 calls were reused from earlier runs" in line for line in found.lines())


def test_M5_an_eval_asks_again_only_for_the_answers_that_failed(tmp_path: Path) -> None:
    class Hiccup(PlantedLM):
        async def complete(self, request: Request) -> Response:
            answer = await super().complete(request)
            return Response("", "empty", 10, 0, 0.0) if self.requests <= self.empty else answer

        empty = 6

    plant(tmp_path, skill, {"random": {"trials": 1}}, calls=200, given={"optimizers": []})
    options, database = EvalOptions([("cache", True)], "train"), tmp_path / "run.db"
    first = evaluate(tmp_path / "workflow.yaml", options=options, database=database, pool=Hiccup(skill))
    assert first.failures == {"empty": 6} and first.spent["calls"] == 40
    later = Hiccup(skill)
    later.empty = 0
    found = evaluate(tmp_path / "workflow.yaml", options=options, database=database, pool=later)
    assert not found.failures and (later.requests, found.spent["reused"]["calls"]) == (6, 34)


def test_predict_takes_what_an_earlier_run_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plant(tmp_path, skill, {"random": {"trials": 1}}, calls=2000)
    file, database = tmp_path / "workflow.yaml", tmp_path / "run.db"

    def predict(rows: str, *changes: tuple[str, Any]) -> tuple[Any, int]:
        found = predict_file(
            file,
            rows,
            tmp_path / "out.jsonl",
            overwrite=True,
            changes=changes,
            pool=(lm := PlantedLM(skill)),
            database=database,
        )
        return found, lm.requests

    found, asked = predict("val.jsonl", ("cache", True))
    assert (asked, found.reused, found.tokens, found.usd) == (0, 24, 0, 0.0)
    found, asked = predict("train.jsonl", ("cache", True))
    assert asked + found.reused == 40 and asked > 0
    assert predict("train.jsonl", ("cache", True))[1] == 0, "a run of predict is an earlier run, too"
    assert predict("train.jsonl")[1] == 40


def test_the_cached_latency_is_the_recorded_one(tmp_path: Path) -> None:
    first, _ = sampled(tmp_path, 2000, cache=True)
    again, _ = sampled(tmp_path, 2000, cache=True)
    assert first.baseline["cost"]["latency"] == again.baseline["cost"]["latency"] > 0


def test_cache_is_a_setting_of_the_file(tmp_path: Path) -> None:
    from workbench.errors import SpecError

    plant(tmp_path, skill, {"random": {"trials": 1}}, calls=2000)
    with pytest.raises(SpecError, match="cache"):
        optimize(tmp_path / "workflow.yaml", options=Options([("cache", "often")]), database=tmp_path / "x.db")

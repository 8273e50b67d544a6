"""Where a run stands in its budget: read, written to a checkpoint, and restored in another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import write

from workbench.errors import StoreError
from workbench.ledger import Spend
from workbench.run import optimize
from workbench.study import Evaluation, Study
from workbench_training.rollouts.position import read_position, restore_position


class Stub:
    """The parts of a ledger and an evaluator that a position consists of."""

    def __init__(self) -> None:
        self.spent, self.paid, self.reused = Spend(), Spend(), Spend()
        self.by_role: dict[str, Spend] = {}
        self.largest_prompt: dict[str, int] = {}
        self.longer_prompts: dict[str, float] = {}
        self.retries = self.judged = 0
        self.judging_spent = Spend()
        self.touched: set[bytes] = set()


class StubStudy:
    def __init__(self) -> None:
        self.ledger = self.evaluator = Stub()


def a_study() -> Any:
    study = StubStudy()
    study.ledger.spent = Spend(7, 2, 100, 50, 0.25, 1.5)
    study.ledger.paid = Spend(6, 0, 90, 45, 0.2, 1.25)
    study.ledger.reused = Spend(1, 0, 10, 5, 0.05, 0.25)
    study.ledger.by_role = {"task": Spend(5), "judge": Spend(2)}
    study.ledger.largest_prompt = {"task": 30}
    study.ledger.longer_prompts = {"openai:m": 1.25}
    study.ledger.retries, study.evaluator.judged, study.evaluator.judging_spent = 3, 2, Spend(2)
    study.ledger.touched = {bytes(8), b"12345678"}
    return study


def test_a_position_survives_a_checkpoint() -> None:
    study, later = a_study(), StubStudy()
    later.ledger.spent, later.ledger.touched = Spend(1), {b"other567"}
    restore_position(later, json.loads(json.dumps(read_position(study))))  # type: ignore[arg-type]
    assert vars(later.ledger) == vars(study.ledger)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spent", {"calls": 1}),
        ("spent", None),
        ("paid", {**vars(Spend()), "usd": float("nan")}),
        ("paid", {**vars(Spend()), "calls": -1}),
        ("retries", True),
        ("by_role", []),
        ("touched", "AAAA"),
        ("touched", "no base64!"),
        ("largest_prompt", {"task": "many"}),
    ],
)
def test_a_damaged_position_is_refused_and_changes_nothing(name: str, value: Any) -> None:
    later = StubStudy()
    with pytest.raises(StoreError, match="a checkpoint of this run is damaged"):
        restore_position(later, {**read_position(a_study()), name: value})  # type: ignore[arg-type]
    assert vars(later.ledger) == vars(Stub())
    with pytest.raises(StoreError):
        restore_position(later, {k: v for k, v in read_position(a_study()).items() if k != name})  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_stored_evaluation_is_the_one_that_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each candidate of a run is read back: scores, failures, predictions and costs are those of its evaluation."""
    made: list[Evaluation] = []
    real = Study.record

    async def record(self: Study, evaluation: Evaluation) -> None:
        assert self.progress.stored is not None and self.progress.stored(evaluation.workflow) is None
        await real(self, evaluation)
        found = self.progress.stored(evaluation.workflow)
        assert found is not None and found.objectives == evaluation.objectives
        for one, other in zip(found.results, evaluation.results, strict=True):
            assert one.example == other.example
            for name in ("score", "failure", "message", "feedback", "prediction", "calls", "tokens", "scores"):
                assert getattr(one, name) == getattr(other, name), name
        made.append(evaluation)

    monkeypatch.setattr(Study, "record", record)
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, optimizers=[{"random": {"trials": 2}}])
    assert optimize(file, database=tmp_path / "run.db").status == "finished"
    assert len(made) > 1

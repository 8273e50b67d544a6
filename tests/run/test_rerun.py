"""What the winner's money buys from the old workflow: as many runs of it, and their vote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, plant
from tests.run.test_sealed import Offers

from workbench.lm import Request, Response
from workbench.proof import Report, compare_reruns, count_runs
from workbench.run import Options, optimize, resume
from workbench.study import Result
from workbench.task import Example
from workbench.testing import Killed

ROW = Example("1", {"text": "x"})
LONG = "Long. " * 60


def result(label: str, score: float | None, **cost: Any) -> Result:
    failure = "timeout" if score is None else None if label else "parse"
    return Result(ROW, score, failure, prediction={"label": label} if label else {}, **cost)


def run(folder: Path, skill: Any, calls: int = 2000, rerun: bool = True) -> tuple[Report, PlantedLM]:
    """A run whose only candidate has a prompt several times as long."""
    if not (folder / "workflow.yaml").exists():
        plant(folder, skill, {"random": {"trials": 1}}, calls=calls, rows=(8, 24, 60), proof={"rerun": rerun})
    lm = PlantedLM(skill)
    report = optimize(
        folder / "workflow.yaml",
        database=folder / "o.db",
        pool=lm,
        optimizers=[("offers", Offers(text=LONG))],
        options=Options(out=str(folder / "o.yaml")),
    )
    return report, lm


def better_by(gain: float) -> Any:
    return lambda request: 0.5 + gain * ("Long." in str(request.messages[0]["content"]))


def test_the_winner_is_compared_with_the_vote_of_what_its_money_buys(tmp_path: Path) -> None:
    """An old workflow that is right half of the time, with errors of three kinds, has more than 0.7 with five votes."""
    report, lm = run(tmp_path, better_by(0.15))
    rerun = report.rerun
    assert rerun is not None and rerun.rows == 60 and rerun.runs >= 5 and rerun.unit == "tokens"
    assert report.proof is not None and report.proof.baseline_mean < 0.65 < rerun.vote < rerun.best
    assert rerun.diff < 0 and f"run {rerun.runs} times a row" in "\n".join(report.lines())
    assert report.as_dict()["rerun"]["vote"] == rerun.vote
    assert report.spent["calls"] == lm.requests <= 2000, "the bill has them"


def test_without_being_asked_for_it_is_only_told(tmp_path: Path) -> None:
    report, _ = run(tmp_path, better_by(0.4), rerun=False)
    assert report.rerun is None and "could run" in "\n".join(report.lines())
    assert "rerun" not in report.as_dict()


@pytest.mark.parametrize("calls", [170, 200, 260])
def test_its_calls_are_of_the_budget(calls: int, tmp_path: Path) -> None:
    report, lm = run(tmp_path, better_by(0.4), calls=calls)
    assert lm.requests <= calls and report.proof is not None
    assert report.rerun is None or 0 < report.rerun.rows <= report.test_rows


class KilledAt(PlantedLM):
    """Kills its process at a request."""

    def __init__(self, skill: Any, at: int):
        super().__init__(skill)
        self.at = at

    async def complete(self, request: Request) -> Response:
        if self.requests == self.at:
            raise Killed
        return await super().complete(request)


def test_a_killed_run_ends_with_the_same_comparison(tmp_path: Path) -> None:
    skill = better_by(0.4)
    whole, lm = run(tmp_path / "whole", skill)
    (tmp_path / "whole" / "o.db").rename(tmp_path / "whole" / "first.db")
    common: dict[str, Any] = {
        "database": tmp_path / "whole" / "o.db",
        "optimizers": [("offers", Offers(text=LONG))],
        "options": Options(out=str(tmp_path / "whole" / "killed.yaml")),
    }
    with pytest.raises((Killed, BaseExceptionGroup)):
        optimize(tmp_path / "whole" / "workflow.yaml", pool=KilledAt(skill, lm.requests - 50), **common)
    report = resume("last", pool=PlantedLM(skill), **common)
    assert whole.rerun is not None and report.rerun == whole.rerun
    assert report.spent["calls"] == whole.spent["calls"]


def test_how_many_runs_the_money_buys() -> None:
    old, new = result("a", 1.0, usd=1.0, tokens=10, calls=1), result("a", 1.0, usd=3.5, tokens=90, calls=1)
    assert count_runs([(old, new)]) == (3, "dollars")
    free = [(result("a", 1.0, tokens=10), result("a", 1.0, tokens=90))]
    assert count_runs(free) == (9, "tokens")
    assert count_runs([(old, result("a", 1.0, usd=1.9))]) == (1, "")
    assert count_runs([(old, result("a", 1.0, usd=99.0))]) == (16, "dollars")
    assert count_runs([]) == (1, "")


def test_votes_are_of_answers_that_have_a_score() -> None:
    right, wrong, failed, lost = result("a", 1.0), result("b", 0.0), result("", 0.0), result("", None)
    rows = [[wrong, right, right], [failed, failed, right], [failed, failed, failed], [right, wrong, lost]]
    winners = [right, right, wrong, right]
    found = compare_reruns(rows, winners, "tokens")
    assert found is not None and (found.runs, found.rows) == (3, 3), "a row without a result is left out"
    assert found.vote == pytest.approx(2 / 3) and found.best == pytest.approx(2 / 3) and found.diff == pytest.approx(0)
    assert compare_reruns([[lost]], [right], "tokens") is None

"""What the winner's money buys from the old workflow: as many runs of it, and their vote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, plant
from tests.run.test_sealed import Offers

from workbench.errors import LMError
from workbench.lm import Request, Response
from workbench.proof import Report, alike_by, any_agree, compare_reruns, count_runs, vote_of
from workbench.run import Options, optimize, resume
from workbench.study import Result
from workbench.task import Example, Task
from workbench_metrics.text import ExactMatch
from workbench_testing import Killed

ROW = Example("1", {"text": "x"})
ALIKE = alike_by(ExactMatch("label"))
LONG = "Long. " * 200


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
    assert report.proof is not None and report.proof.baseline < 0.65 < rerun.vote < rerun.best
    assert rerun.diff < 0 and f"run {rerun.runs} times a row" in "\n".join(report.lines())
    assert report.as_dict()["rerun"]["vote"] == rerun.vote
    assert report.spent["calls"] == lm.requests <= 2000, "the bill has them"


def test_without_being_asked_for_it_is_only_told(tmp_path: Path) -> None:
    report, _ = run(tmp_path, better_by(0.4), rerun=False)
    assert report.rerun is None and "could run" in "\n".join(report.lines())
    assert "rerun" not in report.as_dict()


@pytest.mark.parametrize(("calls", "rows"), [(170, 0), (230, 1), (2000, 60)])
def test_its_calls_are_what_the_budget_leaves(calls: int, rows: int, tmp_path: Path) -> None:
    report, lm = run(tmp_path, better_by(0.4), calls=calls)
    said = "\n".join(report.lines())
    assert lm.requests <= calls and report.proof is not None and report.test_rows == 60, "the proof comes first"
    assert "measures that" not in said, "what was asked for is not advised"
    assert (report.rerun.rows if report.rerun else 0) >= rows
    if report.rerun is None:
        assert "leaves nothing for the rerun" in said
    elif report.rerun.rows < 60:
        assert f"compares {report.rerun.rows} of 60 rows" in said


@pytest.mark.parametrize("own", [{"lm": {"temperature": 0}}, {"node": {"decoding": {"temperature": 0.0}}}])
def test_a_workflow_that_draws_nothing_has_no_vote(own: Any, tmp_path: Path) -> None:
    lm = {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1", **own.get("lm", {})}
    sort = {"predict": "text -> label: Literal['a', 'b', 'c', 'd']", "instructions": "Plain.", **own.get("node", {})}
    plant(
        tmp_path,
        better_by(0.4),
        "random",
        calls=900,
        rows=(8, 24, 60),
        proof={"rerun": True},
        lm=lm,
        nodes={"sort": sort},
    )
    report, _ = run(tmp_path, better_by(0.4))
    assert report.rerun is None and any("draws nothing" in line for line in report.warnings)


def test_the_vote_is_of_what_the_metric_compares(tmp_path: Path) -> None:
    """Notes that differ each time are no other answer."""
    nodes = {
        "think": {"predict": "text -> notes", "instructions": "Note."},
        "sort": {"predict": "text, notes -> label: Literal['a', 'b', 'c', 'd']", "instructions": "Plain."},
    }
    plant(tmp_path, better_by(0.3), "random", calls=3000, rows=(8, 24, 60), proof={"rerun": True}, nodes=nodes)
    report, _ = run(tmp_path, better_by(0.3))
    assert report.rerun is not None and report.proof is not None
    assert report.rerun.vote > report.proof.baseline + 0.05


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


def test_a_server_that_fails_takes_no_proof_with_it(tmp_path: Path) -> None:
    _, lm = run(tmp_path / "whole", better_by(0.4))
    plant(tmp_path / "o", better_by(0.4), "random", calls=2000, rows=(8, 24, 60), proof={"rerun": True})

    class Refuses(PlantedLM):
        async def complete(self, request: Request) -> Response:
            if self.requests >= lm.requests - 100:
                raise LMError("auth", "the key was withdrawn")
            return await super().complete(request)

    report = optimize(
        tmp_path / "o" / "workflow.yaml",
        database=tmp_path / "o" / "o.db",
        pool=Refuses(better_by(0.4)),
        optimizers=[("offers", Offers(text=LONG))],
        options=Options(out=str(tmp_path / "o" / "o.yaml")),
    )
    assert report.status == "finished" and report.gain_shown and report.test_rows == 60
    assert any("the rerun ended early" in line and "withdrawn" in line for line in report.warnings)


def test_rows_of_a_cluster_count_once() -> None:
    right, wrong = result("a", 1.0), result("b", 0.0)
    rows, winners, keys = [[wrong, wrong]] * 12 + [[right, right]] * 4, [right] * 16, [0] * 12 + [1, 2, 3, 4]
    found = compare_reruns(rows, winners, "tokens", alike=ALIKE, clusters=keys)
    assert found is not None and found.diff == pytest.approx(0.2) and found.rows == 16


def test_the_report_counts_clusters_in_both_comparisons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart, _ = run(tmp_path, better_by(0.4))
    (tmp_path / "o.db").unlink()
    (tmp_path / "o.yaml").unlink()
    monkeypatch.setattr(Task, "cluster_of", lambda self, example: f"{example['label']}{example.id[-1] < '8'}")
    grouped, _ = run(tmp_path, better_by(0.4))
    assert apart.rerun is not None and grouped.rerun is not None and grouped.proof is not None
    assert grouped.proof.n == 8 and grouped.rerun.rows == apart.rerun.rows == 60
    (low, high), (least, most) = apart.rerun.ci95, grouped.rerun.ci95
    assert most - least > high - low, "of eight units, and not of sixty"


def test_answers_are_alike_as_the_metric_compares_them() -> None:
    def number(value: Any, score: float) -> Result:
        return Result(ROW, score, prediction={"answer": value, "why": str(value) * 3})

    rows = [number("7", 0.0), number("42", 1.0), number(42.0, 1.0), number("7 ", 0.0), number(42, 1.0)]
    alike = alike_by(ExactMatch("answer"))
    assert vote_of(rows, alike) == 1.0
    assert any_agree([rows], alike) and not any_agree([[rows[0], rows[1]]], alike)
    assert not any_agree([rows], alike_by(None)), "without a field, all of them count"


def test_votes_are_of_answers_that_have_a_score() -> None:
    right, wrong, failed, lost = result("a", 1.0), result("b", 0.0), result("", 0.0), result("", None)
    rows = [[wrong, right, right], [failed, failed, right], [failed, failed, failed], [right, wrong, lost]]
    winners = [right, right, wrong, right]
    found = compare_reruns(rows, winners, "tokens", alike=ALIKE)
    assert found is not None and (found.runs, found.rows) == (3, 3), "a row without a result is left out"
    assert found.vote == pytest.approx(2 / 3) and found.best == pytest.approx(2 / 3) and found.diff == pytest.approx(0)
    assert compare_reruns([[lost]], [right], "tokens", alike=ALIKE) is None

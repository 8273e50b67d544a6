"""`workbench attribute --method replay` and `spectrum`, on runs with a planted fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.attribution.planted import STRONG, Models
from tests.evaluation.test_replays import NODES, answers, fault_of, file

from workbench.cli import cli
from workbench.errors import SpecError, StoreError
from workbench.evaluation import EvalOptions, evaluate

__all__ = ["file"]


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Models:
    found = Models(answers(True), answers(False))
    monkeypatch.setattr("workbench.lm.pool.make_lm", found.get)
    monkeypatch.setenv("WORKBENCH_TRUST", "/")
    return found


@pytest.fixture
def database(file: Path, models: Models, tmp_path: Path) -> Path:
    evaluate(file, database=tmp_path / "a.db", pool=models)
    return tmp_path / "a.db"


def attribute(database: Path, *flags: str) -> Result:
    return CliRunner().invoke(cli, ["attribute", "last", "--db", str(database), *flags])


def last_json(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.output
    return json.loads(done.output.splitlines()[-1])


def test_replay_prints_the_step_of_each_row_and_the_repair_rate(database: Path) -> None:
    flags = ("--method", "replay", "--lm", STRONG, "--api-base", "http://127.0.0.1:9/v1")
    found = last_json(attribute(database, *flags, "--json"))
    assert found["repair_rate"] == 1.0 and found["paid"]["calls"] > 0
    for row in found["rows"]:
        assert row["node"] == f"node{fault_of(int(row['row'][1:]))}" and row["repaired"] and row["reruns"] <= 5
    shown = attribute(database, *flags)
    assert "Repair rate: 100% of the rows" in shown.output and "Paid now: 0 calls" in shown.output
    assert f"1 of {NODES}" in shown.output and shown.exit_code == 0


def test_a_replay_whose_budget_ends_exits_with_1_and_goes_on_with_more(database: Path) -> None:
    flags = ("--method", "replay", "--lm", STRONG, "--api-base", "http://127.0.0.1:9/v1")
    short = attribute(database, *flags, "--calls", "5")
    assert short.exit_code == 1 and "budget: it did not last" in short.output
    rest = last_json(attribute(database, *flags, "--json"))
    assert all("failure" not in row for row in rest["rows"])


def test_labels_repair_the_nodes_that_the_row_names(database: Path, models: Models) -> None:
    sent = len(models.requests)
    found = last_json(attribute(database, "--method", "replay", "--repair", "label", "--limit", "2", "--json"))
    assert len(found["rows"]) == 2 and found["repair_rate"] == 1.0
    assert len(models.requests) > sent and not models.strong.requests


def test_spectrum_ranks_nodes_without_a_call(database: Path, models: Models) -> None:
    sent = len(models.requests)
    found = last_json(attribute(database, "--method", "spectrum", "--json"))
    assert found["nodes"][0]["suspiciousness"] > 0 and found["failed"] + found["passed"] == 12
    shown = attribute(database, "--method", "spectrum", "--formula", "dstar")
    assert "dstar" in shown.output and "no model asked" in shown.output and len(models.requests) == sent


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--method", "replay"], "another model one must be named"),
        (["--method", "spectrum", "--passing", "0"], "there is nothing to compare"),
        (["--repair", "label"], "--repair is for --method replay"),
        (["--method", "replay", "--lm", STRONG, "--row", "r99"], "no train or val row 'r99'"),
    ],
)
def test_wrong_use_is_said(flags: list[str], words: str, database: Path) -> None:
    done = attribute(database, *flags)
    assert done.exit_code != 0
    assert words in done.output + str(done.exception)


def test_files_of_logs_cannot_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text("{}")
    done = CliRunner().invoke(cli, ["attribute", str(tmp_path / "log.json"), "--method", "replay"])
    assert done.exit_code == 2 and "is for a run of workbench" in done.output


def test_sealed_rows_are_not_repeated(file: Path, models: Models, tmp_path: Path) -> None:
    evaluate(file, options=EvalOptions(split="test"), database=tmp_path / "b.db", pool=models)
    done = attribute(tmp_path / "b.db", "--method", "replay", "--lm", STRONG)
    assert isinstance(done.exception, StoreError) and "sealed" in str(done.exception)
    assert not isinstance(done.exception, SpecError)

"""`workbench agent attribute --method replay` and `spectrum`, on runs with a planted fault."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.kit.credit.planted import STRONG, Models
from tests.plugins.attribute.test_replays import NODES, answers, fault_of, file

from workbench.cli import cli
from workbench.errors import SpecError, StoreError
from workbench.evaluation import EvalOptions, evaluate
from workbench.store import Store
from workbench_kit import credit
from workbench_kit.credit import Suspect, rank_nodes

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
    return CliRunner().invoke(cli, ["agent", "attribute", "last", "--db", str(database), *flags])


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


def show(database: Path, run: str, *flags: str) -> Result:
    return CliRunner().invoke(cli, ["show", run, "--db", str(database), *flags])


def test_show_tells_the_diagnoses_of_an_attribution(database: Path) -> None:
    flags = ("--method", "replay", "--lm", STRONG, "--api-base", "http://127.0.0.1:9/v1")
    found = last_json(attribute(database, *flags, "--json"))
    shown = show(database, found["run"])
    assert shown.exit_code == 0, shown.output
    for row in found["rows"]:
        (line,) = [text for text in shown.output.splitlines() if text.split()[0] == row["row"]]
        cells = [row["row"], row["node"], str(row["step"]), "of", str(NODES), "1.00", "yes", str(row["reruns"])]
        assert line.split()[:8] == cells and row["evidence"] in line
    assert "Repair rate: 100%" in shown.output and f"Cost: {found['paid']['calls']} calls" in shown.output
    assert f"of run {found['examined'][0]}" in shown.output and "Only its calls" not in shown.output
    report = last_json(show(database, found["run"], "--json"))["report"]
    assert report["repair_rate"] == 1.0 and report["by_node"] == found["by_node"]
    assert sum(row["calls"] for row in report["rows"]) == found["paid"]["calls"]
    refused = show(database, found["run"], "--row", found["rows"][0]["row"])
    assert refused.exit_code == 2 and f"its rows are in: workbench show {found['examined'][0]}" in refused.output


def test_show_of_a_row_names_its_diagnosis_and_the_run_that_made_it(database: Path) -> None:
    flags = ("--method", "replay", "--lm", STRONG, "--api-base", "http://127.0.0.1:9/v1")
    found = last_json(attribute(database, *flags, "--json"))
    (row, *others), run = found["rows"], found["run"]
    shown = show(database, "last", "--row", row["row"])
    said = f"diagnosed by run {run} (replay, steps repaired by lm: {STRONG}): {row['node']}, step {row['step']}, "
    assert f"{said}confidence 1.00, repaired by it alone; {row['evidence']}" in shown.output
    (diagnosis,) = last_json(show(database, "last", "--row", row["row"], "--json"))["row"][0]["diagnoses"]
    kept = ("node", "agent", "step", "confidence", "repaired", "reruns", "calls", "usd", "evidence")
    assert {name: diagnosis[name] for name in kept} == {name: row[name] for name in kept}
    assert diagnosis["run"] == run and others
    passed = next(
        f"r{n}" for n in range(24) if fault_of(n) is None and show(database, "last", "--row", f"r{n}").exit_code == 0
    )
    assert "diagnosed" not in show(database, "last", "--row", passed).output


@pytest.mark.parametrize(
    ("path", "value"), [("$.rows[0].usd", "'x'"), ("$.rows[0].row", "7"), ("$.examined", "'x'"), ("$.rows", "'x'")]
)
def test_an_attribution_of_another_form_is_shown_or_one_error(path: str, value: str, database: Path) -> None:
    flags = ("--method", "replay", "--repair", "label")
    found = last_json(attribute(database, *flags, "--json"))
    store = Store(database)
    store.execute(
        f"update runs set report = json_set(report, '{path}', {value}), checksum = null where kind = 'attribute'"
    )
    store.close()
    for words in ((found["run"],), ("last", "--row", found["rows"][0]["row"])):
        error = show(database, *words).exception
        assert error is None or (isinstance(error, StoreError) and str(database) in str(error))


def test_a_diagnosis_is_of_the_run_and_the_workflow_that_were_examined(
    file: Path, database: Path, models: Models
) -> None:
    flags = ("--method", "replay", "--repair", "label")
    row = last_json(attribute(database, *flags, "--json"))["rows"][0]["row"]
    evaluate(file, database=database, pool=models)
    assert "diagnosed" not in show(database, "last", "--row", row).output


def test_a_replay_whose_budget_ends_exits_with_1_and_goes_on_with_more(database: Path) -> None:
    flags = ("--method", "replay", "--lm", STRONG, "--api-base", "http://127.0.0.1:9/v1")
    short = attribute(database, *flags, "--budget-calls", "5")
    assert short.exit_code == 1 and "budget: it ran out" in short.output
    rest = last_json(attribute(database, *flags, "--json"))
    assert all(not row["failure"] for row in rest["rows"])


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


def test_a_run_without_a_method_pays_nothing_and_names_the_first_of_equals(
    database: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = len(models.requests)
    assert last_json(attribute(database, "--json"))["method"] == "spectrum" and len(models.requests) == sent
    assert " first: " not in attribute(database).output, "one node is the most suspicious"

    def rank(*given: Any) -> list[Suspect]:
        found = rank_nodes(*given)
        return [replace(found[0], node="rephrase"), replace(found[0], node="solve"), *found[1:]]

    monkeypatch.setattr(credit, "rank_nodes", rank)
    assert "Look at rephrase first: solve may be as suspicious only because" in attribute(database).output


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--method", "replay"], "a model must be named"),
        (["--method", "spectrum", "--passing", "0"], "there is nothing to compare"),
        (["--repair", "label"], "--repair cannot be combined with --method spectrum"),
        (["--method", "replay", "--lm", STRONG, "--row", "r99"], "has no row 'r99'"),
    ],
)
def test_wrong_use_is_said(flags: list[str], words: str, database: Path) -> None:
    done = attribute(database, *flags)
    assert done.exit_code != 0
    assert words in done.output + str(done.exception)


def test_files_of_logs_cannot_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text("{}")
    done = CliRunner().invoke(cli, ["agent", "attribute", str(tmp_path / "log.json"), "--method", "replay"])
    assert done.exit_code == 2 and "needs a run of workbench" in done.output


def test_sealed_rows_are_not_repeated(file: Path, models: Models, tmp_path: Path) -> None:
    evaluate(file, options=EvalOptions(split="test"), database=tmp_path / "b.db", pool=models)
    done = attribute(tmp_path / "b.db", "--method", "replay", "--lm", STRONG)
    assert isinstance(done.exception, StoreError) and "sealed" in str(done.exception)
    assert not isinstance(done.exception, SpecError)

"""`workbench report` of an evaluation: a page to mail, and a table of rows with what was answered."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.scripted import Script

pytest.importorskip("jinja2")

from workbench.cli import cli
from workbench.errors import LMError, StoreError
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Request
from workbench.store import Store
from workbench_view.evaluated import EVAL_WRITERS, EvalFacts, read_evaluation
from workbench_view.exports import WRITERS

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six rows, of which one is answered wrongly, and one is a formula to a spreadsheet."""
    folder = tmp_path_factory.mktemp("evaluated")
    texts = ["=1+1", HOSTILE, *"cdef"]
    rows = [{"text": text, "label": text, "n": n} for n, text in enumerate(texts)]
    (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {"name": "t", "lm": "openai/m", "data": {"val": "r.jsonl"}, "metric": "exact_match(label)"}
    (folder / "w.yaml").write_text(json.dumps({**spec, "nodes": {"a": {"predict": "text -> label"}}}))

    def say(request: Request) -> str:
        text = str(request.messages[-1]["content"]).removeprefix("text: ").removesuffix("\nlabel:")
        return "wrong" if text == "c" else text

    evaluate(folder / "w.yaml", options=EvalOptions(), database=folder / "run.db", pool=Script(say))
    return folder / "run.db"


@pytest.fixture
def facts(database: Path) -> EvalFacts:
    store = Store(database)
    try:
        return read_evaluation(store, store.find_run("last"))
    finally:
        store.close()


def test_u14_the_table_has_texts_and_answers(facts: EvalFacts) -> None:
    lines = list(csv.DictReader(io.StringIO(EVAL_WRITERS[".csv"](facts))))
    assert len(lines) == 6 and lines[0]["score"] == "0.0", "worst first"
    assert (lines[0]["text"], lines[0]["prediction.label"], lines[0]["label"]) == ("c", "wrong", "c")
    assert {line["text"] for line in lines} == {"'=1+1", HOSTILE, *"cdef"}, "no formula"


def test_u14_the_table_keeps_a_field_that_is_called_as_a_result(facts: EvalFacts) -> None:
    rows = [{**row, "further": {"message": "Hi", "split": "east", "row.split": 1}} for row in facts.rows]
    line = next(csv.DictReader(io.StringIO(EVAL_WRITERS[".csv"](replace(facts, rows=rows)))))
    assert (line["row.message"], line["row.row.split"], line["row.split"]) == ("Hi", "east", "1")
    assert (line["message"], line["split"]) == ("", "val")


def test_u14_the_page_shows_each_row_and_runs_nothing(facts: EvalFacts) -> None:
    page = EVAL_WRITERS[".html"](facts)
    assert page.count("<details>") == 6 and "<script" not in page and "&lt;script&gt;" in page
    assert facts.report.headline() in page and page.index("wrong") < page.index("=1+1")


def test_u14_markdown_names_what_failed_and_shows_no_input(facts: EvalFacts) -> None:
    text = EVAL_WRITERS[".md"](facts)
    assert facts.rows[0]["handle"].partition(' "')[0] in text and text.count("| 0.000 |") == 1
    assert HOSTILE not in text and "wrong" not in text


def test_u14_json_has_all_rows(facts: EvalFacts) -> None:
    found = json.loads(EVAL_WRITERS[".json"](facts))
    assert found["run"]["score"] == facts.report.score and len(found["rows"]) == 6
    assert found["rows"][0]["prediction"] == {"label": "wrong"} and found["rows"][0]["inputs"] == {"text": "c"}


def test_u14_the_command_writes_of_the_last_run_of_either_kind(database: Path, tmp_path: Path) -> None:
    for ending in WRITERS:
        for _ in range(2):
            done = CliRunner().invoke(cli, ["report", "--db", str(database), "--out", str(tmp_path / f"r{ending}")])
            assert done.exit_code == 0, done.output


def test_u14_an_evaluation_without_a_report_says_so(database: Path, tmp_path: Path) -> None:
    def refuse(request: Request) -> str:
        raise LMError("auth", "no")

    with pytest.raises(LMError):
        evaluate(database.with_name("w.yaml"), database=tmp_path / "x.db", pool=Script(refuse))
    store = Store(tmp_path / "x.db")
    row: Any = {**dict(store.find_run("last")), "report": None, "checksum": None}
    with pytest.raises(StoreError, match="has no report: it is failed"):
        read_evaluation(store, row)
    store.close()


def test_u20_the_last_run_of_a_kind_that_is_not_there_is_told_with_those_that_are(database: Path) -> None:
    done = CliRunner().invoke(cli, ["export", "last", "--db", str(database)])
    assert isinstance(done.exception, StoreError) and "no run of optimize is in" in str(done.exception)
    assert "(eval)" in str(done.exception)

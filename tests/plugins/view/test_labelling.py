"""Answers are labelled on a page: blind, one by one, and what was labelled proves a gain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from starlette.testclient import TestClient
from tests.plugins.label.test_label import evaluated
from tests.plugins.view.conftest import BASE, HOSTILE, improve
from tests.run.test_judged_run import again, run

from workbench.store import ReadOnlyStore, Store
from workbench_kit.labels import order_items, read_labels, run_answers
from workbench_view.server.access import Access
from workbench_view.server.app import make_app
from workbench_view.server.site import LabelFiles, Site


class Labeller:
    """Somebody before the page of a run, or of a file of rows."""

    def __init__(self, site: Site, where: str):
        self.client = TestClient(make_app(site, Access()), base_url=BASE)
        self.where, self.page = where, ""

    def open(self, query: str = "?by=ann") -> str:
        answer = self.client.get(self.where + query)
        assert answer.status_code == 200, answer.text
        self.page = answer.text
        return self.page

    def fields(self) -> dict[str, str]:
        """What the form of the page sends of itself."""
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.page)
        return {name: unescape(value) for name, value in found}

    def send(self, action: str, **fields: str) -> int:
        form = {**self.fields(), "action": action, **fields}
        answer = self.client.post(self.where, data=form, headers={"origin": BASE})
        self.page = answer.text
        return answer.status_code


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    run(tmp_path, labels="labels.jsonl")
    return tmp_path


def of_run(folder: Path, place: str = "labels.jsonl") -> tuple[Site, Labeller]:
    site = Site(folder / "r.db", labels=LabelFiles(folder / place))
    store = ReadOnlyStore(str(folder / "r.db"))
    name = store.find_run("last")["run"]
    store.close()
    return site, Labeller(site, f"/runs/{name}/label")


def of_rows(folder: Path, rows: list[dict[str, Any]]) -> tuple[Site, Labeller]:
    Store(folder / "r.db").close()
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    site = Site(folder / "r.db", labels=LabelFiles(rows=file, row_labels=folder / "rows.labels.jsonl"))
    return site, Labeller(site, "/label")


def said(page: str) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", page))


@pytest.mark.slow
def test_labels_of_the_page_let_the_judge_prove_the_gain(judged: Path) -> None:
    site, ann = of_run(judged)
    assert "80 answers, one at a time" in said(ann.open(""))
    ann.open()
    store = ReadOnlyStore(str(judged / "r.db"))
    found = run_answers(store, "last")
    store.close()
    order = [(item.row, item.key) for item in order_items([(a.cluster, a.item) for a in found.answers])]
    for number in range(64):
        shown = ann.fields()
        assert (shown["row"], shown["answer"]) == order[number], "in the order of the terminal"
        assert f"{number} of 80 answers labelled by ann" in said(ann.page)
        assert (
            ann.send("score", score="0.8" if "better" in said(ann.page.partition("answer-h")[2][:400]) else "0.5")
            == 200
        )
    told = said(ann.open("?by=ann&report=1"))
    assert "32 sealed rows have labels on both sides" in told and "64 answers labelled by 1: ann" in told
    report, lm = again(judged)
    assert report.gain_shown and lm.requests == 0 and report.judge is not None and report.judge.n == 32
    site.close()


def test_the_page_tells_nothing_of_the_side_the_judge_or_the_expected_answer(judged: Path) -> None:
    site, ann = of_run(judged)
    ann.open()
    for _ in range(20):
        main = ann.page.partition("<main")[2].partition("</main>")[0]
        for told in ("baseline", "winner", "candidate", "score: ", "expected", "fine"):
            assert told not in main, told
        assert ann.send("good") == 200
    assert "baseline" not in (judged / "labels.jsonl").read_text()
    site.close()


def test_the_page_of_an_evaluation_shows_the_workflows_inputs_and_not_the_label(tmp_path: Path) -> None:
    evaluated(tmp_path)
    _, ann = of_run(tmp_path)
    ann.open()
    main = ann.page.partition("<main")[2].partition("</main>")[0]
    assert "val " in main and "plain" in main
    assert not [word for word in ("gold", "noted", "id-") if word in said(main)]


def test_the_last_label_counts_and_labellers_do_not_see_each_other(judged: Path) -> None:
    site, ann = of_run(judged)
    ann.open()
    first = ann.fields()
    assert ann.send("good", edit="Better.\r\nYes.", comment="a\u202eb") == 200
    link = re.search(r'href="([^"]+)">Change the last label', ann.page)
    assert link is not None
    ann.open("?" + unescape(link[1]).partition("?")[2])
    assert ann.fields()["answer"] == first["answer"] and "Your earlier label: 1.0" in said(ann.page)
    assert "Better." in ann.page, "what was written is there to be changed"
    assert ann.send("bad") == 200
    assert ann.send("skip") == 200
    assert [one.score for one in read_labels(judged / "labels.jsonl") if one.by == "ann"] == [0.0, None]
    assert (judged / "labels.jsonl").read_text().count("\n") == 3, "what was written stays written"
    assert "0 of 80 answers labelled by bob" in said(ann.open("?by=bob"))
    assert ann.fields()["answer"] == first["answer"]
    site.close()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"score": "2"}, 422),
        ({"score": "nan"}, 422),
        ({"score": ""}, 422),
        ({"score": "1", "by": " "}, 422),
        ({"score": "1", "by": "x" * 61}, 422),
        ({"score": "1", "by": "ann\x1b[31m"}, 422),
        ({"score": "1", "row": "other"}, 422),
        ({"score": "1", "answer": "other"}, 422),
        ({"score": "1", "edit": "x" * 20_001}, 413),
        ({"score": "1", "form_token": "other"}, 403),
    ],
)
def test_a_label_that_is_none_is_refused_and_not_written(judged: Path, fields: dict[str, str], code: int) -> None:
    site, ann = of_run(judged)
    ann.open()
    assert ann.send("score", **fields) == code and not (judged / "labels.jsonl").exists()
    site.close()


def test_rows_of_a_file_are_labelled(tmp_path: Path) -> None:
    rows = [
        {"input": f"Question {i}?", "output": {"text": f"Answer {i}."}, "score": 1, "answer": "SECRET"}
        for i in range(3)
    ]
    site, ann = of_rows(tmp_path, rows)
    assert 'href="/label"' in ann.open("")
    for _ in rows:
        ann.open()
        assert "Question" in ann.page and "Answer" in ann.page and "SECRET" not in ann.page
        assert ann.send("good") == 200
    assert "There are no more answers" in said(ann.page)
    assert {one.score for one in read_labels(tmp_path / "rows.labels.jsonl")} == {1.0}
    assert "3 answers labelled by 1: ann" in said(ann.open("?by=ann&report=1"))
    site.close()


def test_hostile_answers_are_text(tmp_path: Path) -> None:
    site, ann = of_rows(tmp_path, [{"input": text, "output": text} for text in HOSTILE.values()])
    for _ in HOSTILE:
        ann.open()
        assert "<script>alert" not in ann.page and "onerror=alert(2)>" not in ann.page and "\x1b" not in ann.page
        assert ann.send("bad") == 200
    assert "There are no more answers" in said(ann.page)
    site.close()


def _damaged(folder: Path) -> None:
    (folder / "labels.jsonl").write_text('{"no": "label"}\n{}\n')


def _unwritable(folder: Path) -> None:
    (folder / "labels.jsonl").mkdir()


@pytest.mark.parametrize("harm", [_damaged, _unwritable])
def test_a_file_of_labels_that_cannot_be_used_is_one_page_of_error(judged: Path, harm: Callable[[Path], None]) -> None:
    site, ann = of_run(judged)
    harm(judged)
    answer = ann.client.get(ann.where + "?by=ann")
    assert answer.status_code == 500 and "labels" in said(answer.text)
    site.close()


def test_a_page_that_writes_elsewhere_than_the_workflow_reads_says_so(judged: Path) -> None:
    site, ann = of_run(judged, "other.jsonl")
    assert f"workbench view --labels {judged / 'labels.jsonl'}" in said(ann.open(""))
    site.close()
    site, ann = of_run(judged)
    assert "workbench view --labels" not in said(ann.open(""))
    assert ann.client.get("/label").status_code == 404, "no file of rows was named"
    site.close()


def test_a_run_without_answers_is_told_of_on_a_page(tmp_path: Path) -> None:
    improve(tmp_path, tmp_path / "r.db")
    store = Store(tmp_path / "r.db")
    name = store.find_run("last")["run"]
    store.execute("delete from results")
    store.close()
    site = Site(tmp_path / "r.db")
    page = said(Labeller(site, f"/runs/{name}/label").open())
    assert "Nothing to label" in page and "has no sealed rows" in page
    site.close()


def test_a_wrong_field_is_told_before_the_page_is_served(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from workbench.cli import cli
    from workbench.errors import SpecError

    of_rows(tmp_path, [{"question": "1 + 1?", "output": "2"}])[0].close()
    words = ["view", "--db", str(tmp_path / "r.db"), "--answers", str(tmp_path / "rows.jsonl"), "--field", "answer"]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, SpecError) and "no row of" in str(done.exception)


def test_a_run_without_a_judge_is_told_of_none(tmp_path: Path) -> None:
    improve(tmp_path, tmp_path / "r.db")
    site, ann = of_run(tmp_path)
    ann.open()
    for _ in range(6):
        ann.send("good")
    told = said(ann.open("?by=ann&report=1"))
    assert "6 answers labelled by 1: ann" in told and "of a judge" not in told
    site.close()

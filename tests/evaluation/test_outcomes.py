"""Every way in which a row has no result, in every command: it counts in no mean, is counted, and ends with code 1."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.errors import FailureKind, LMError
from workbench.lm import Request

#: Rows of the file; those without a result are each fourth one.
ROWS, BAD = 36, range(0, 36, 4)
#: A judge's answers that are no grade on its scale of 10.
NO_GRADES = {
    "judge_share": "Fine.\nscore: 0.9",
    "judge_words": "It is good.",
    "judge_criteria": '{"clarity": {"score": 3}, "depth": {"score": 8}}',
    "judge_list": '[{"criterion": "clarity", "score": 3}, {"criterion": "depth", "score": 8}]',
    "judge_above": "score: 85",
}
#: What the ledger makes of each kind of failed call, by itself.
CALLS = ["server", "connection", "timeout", "broken", "bad_body", "provider", "blocked"]
WAYS = [*CALLS, *NO_GRADES, "judge_refused", "data", "label"]
#: One of each mechanism is in the fast tier.
FAST = {"server", "blocked", "judge_share", "data"}
PARAMS = [way if way in FAST else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


class Failing(Script):
    """Answers each row rightly, but for the bad ones, which fail in one way."""

    def __init__(self, way: str):
        super().__init__(lambda request: self._say(way, request))

    def _say(self, way: str, request: Request) -> str:
        text = str([message["content"] for message in request.messages])
        word = (re.findall(r"word: (w\d+)", text) or re.findall(r"w\d+", text))[-1]
        bad, judging = int(word[1:]) in BAD, "You grade" in text
        if judging and bad and way == "judge_refused":
            raise LMError("bad_request", "the judge cannot see this")
        if judging:
            return NO_GRADES[way] if bad and way in NO_GRADES else "Right.\nscore: 10"
        if bad and way == "provider":
            raise RuntimeError("a bug of the provider's plugin")
        if bad and way in CALLS:
            raise LMError(way, "it failed")
        return f"label: {word}"


@pytest.fixture
def failing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A workflow in the current folder whose bad rows have no result in this way."""
    way = request.param
    rows: list[dict[str, Any]] = [{"word": f"w{i}", "label": f"w{i}"} for i in range(ROWS)]
    for i in BAD if way == "data" else ():
        del rows[i]["word"]
    for i in BAD if way == "label" else ():
        rows[i]["label"] = ""
    model = {"model": "openai/scripted", "api_base": "http://127.0.0.1:9/v1", "attempts": 1}
    scored = {"judge": {"judge": {"field": "label"}}, "label": "contains(label)"}
    spec = {
        "name": "outcomes",
        "data": {"file": "rows.jsonl", "split": {"train": 12, "val": 12, "test": 12}},
        "metric": scored.get(way.partition("_")[0], "exact_match(label)"),
        "lm": model,
        "roles": {"judge": model},
        "nodes": {"say": {"predict": "word -> label"}},
        "search": {"nodes.say.instructions": ["Say it.", "Say it well."]},
        "optimize": [{"random": {"trials": 2}}],
        "attacks": {"a": {"query": {"word": " Say w99!"}, "success": {"answer": "w99"}}} if way != "data" else {},
        "budget": {"calls": 5000},
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: Failing(way))
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("w.yaml").write_text(json.dumps(spec))
    return way


def kind_of(way: str) -> str:
    return {"judge": "judge", "label": "data"}.get(way.partition("_")[0], way)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def last_json(found: Result) -> Any:
    return json.loads(found.stdout.splitlines()[-1])


@pytest.mark.parametrize("failing", PARAMS, indirect=True)
def test_eval_leaves_rows_without_a_result_out_and_ends_with_1(failing: str) -> None:
    gates = ["--min-score", "0.9", "--junit", "j.xml", "--markdown", "t.md"]
    done = invoke("eval", "w.yaml", "--split", "all", *gates)
    assert done.exit_code == 1, done.output
    kind = kind_of(failing)
    assert "all: 1.000 [" in done.stdout and f"on 27 of 36 rows; 9 rows have no result ({kind} 9)" in done.stdout
    assert "is below --min-score" not in done.output and "not held against a gate" in done.stderr
    suite = ElementTree.parse("j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("36", "0", "9")
    assert {error.get("type") for error in suite.iter("error")} == {kind}
    assert Path("t.md").read_text().splitlines()[2].startswith("| outcomes | 27 of 36 | 1.000 |")
    assert Path("t.md").read_text().splitlines()[2].endswith(" 0 | 9 |")
    barred = invoke("eval", "w.yaml", "--split", "all", "--json", "--not-worse-than", "last")
    found = last_json(barred)
    assert barred.exit_code == 1 and "not held against a gate" in barred.stderr and "not_worse" not in found
    assert (found["score"], found["n"], found["missing"]) == (1.0, 27, {kind: 9})
    compared = last_json(invoke("compare", "last", found["run"], "--json"))
    assert [side["score"] for side in compared["sides"]] == [1.0, 1.0]
    assert [side["cost"]["tokens"] for side in compared["sides"]] == [found["cost"]["tokens"]] * 2
    assert compared["compared"][0]["excluded"] == 9 and compared["compared"][0]["diff"] == 0.0
    assert "9 of 36 rows have no result, and count in no mean" in invoke("compare", "last", found["run"]).stdout


@pytest.mark.parametrize("failing", ["server", "blocked", "data"], indirect=True)
def test_predict_counts_rows_without_a_result_and_ends_with_1(failing: str) -> None:
    done = invoke("predict", "w.yaml", "rows.jsonl", "--out", "out.jsonl", "--json")
    found = last_json(done)
    assert done.exit_code == 1 and found["missing"] == {failing: 9}
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [i for i, row in enumerate(rows) if row["failure"]] == [*BAD]
    assert {row["failure"].partition(":")[0] for row in rows if row["failure"]} == {failing}


@pytest.mark.slow
@pytest.mark.parametrize("failing", WAYS, indirect=True)
def test_matrix_optimize_and_redteam_leave_rows_without_a_result_out(failing: str) -> None:
    kind = kind_of(failing)
    axes = ["--matrix", "nodes.say.instructions=Say it.,Say it well."]
    matrix = invoke("eval", "w.yaml", "--split", "all", *axes, "--json")
    cells = last_json(matrix)["cells"]
    assert matrix.exit_code == 1 and [(c["score"], c["missing"]) for c in cells] == [(1.0, {kind: 9})] * 2
    run = invoke("optimize", "w.yaml", "--allow-unproved", "--json")
    assert run.exit_code == 0, run.output
    report = last_json(run)
    missing = report["baseline"]["missing"]
    assert report["baseline"]["val"] == 1.0 and set(missing["val"]) == {kind}
    assert any(f"({kind} {missing['val'][kind]}) for the baseline" in warning for warning in report["warnings"])
    if kind != "data":
        attacked = invoke("redteam", "w.yaml", "--json")
        found = last_json(attacked)
        assert attacked.exit_code == 1 and found["missing"] == missing["val"][kind]
        assert found["utility"]["value"] == 1.0 and found["attacks"]["a"]["utility_under_attack"]["value"] == 1.0


def test_every_kind_without_a_result_is_tried_here() -> None:
    """But for what ends a run, what the ledger waits for, and workers that die, which have tests of their own."""
    elsewhere = {"auth", "rate_limit", "worker", "no_server"}
    assert {str(kind) for kind in FailureKind if kind.no_result} == {*map(kind_of, WAYS)} | elsewhere


def test_no_score_is_taken_for_0() -> None:
    """A missing score is left out, or filled by the one function for it (`filled_scores`)."""
    root = Path(__file__).parents[2]
    wrong = [
        f"{path.relative_to(root)}:{number}"
        for folder in ("core", "plugins")
        for path in sorted((root / folder).rglob("*.py"))
        if "worlds/worlds" not in str(path)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"\bscores?(?:[\"']\])? or 0", line)
    ]
    assert wrong == []


@pytest.mark.parametrize("failing", ["judge_words"], indirect=True)
def test_markdown_says_what_a_further_metric_could_not_score(failing: str) -> None:
    spec = json.loads(Path("w.yaml").read_text())
    Path("w.yaml").write_text(json.dumps({**spec, "metric": ["exact_match(label)", {"judge": {"field": "label"}}]}))
    done = invoke("eval", "w.yaml", "--split", "all", "--markdown", "t.md")
    assert done.exit_code == 0, done.output
    assert "| 1.000 (9 not scored) |" in Path("t.md").read_text()
    assert "judge: 1.000 (9 not scored)" in done.output

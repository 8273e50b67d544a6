"""A metric that never works ends the run at once, with its own words; one that fails on some rows is named in the
report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.forking import run_module
from tests.helpers.scripted import Script

from workbench.errors import SpecError
from workbench.run import Options, optimize
from workbench.store import Store
from workbench.task import Example, MetricFaults, as_score

BROKEN = {
    "raises": ("    wanted = example['labels']\n    return 1.0\n", "KeyError: 'labels'", "checks.py, line 2"),
    "none": ("    1.0\n", "TypeError: a metric must return a number", "checks.py, line 1"),
    "three": ("    return 3\n", "a metric must return a number in [0, 1], not 3.0", "checks.py, line 1"),
    "inside json": ("    import json\n    return json.loads('x')\n", "JSONDecodeError", "checks.py, line 3"),
}


def workflow_file(folder: Path, body: str, rows: int = 60, **spec: Any) -> Path:
    made = [{"text": f"t{i}", "label": "ab"[i % 2], "number": i} for i in range(rows)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    (folder / "checks.py").write_text(f"def right(example, prediction, trace):\n{body}")
    path = folder / "w.yaml"
    path.write_text(
        json.dumps(
            {
                "data": {"file": "rows.jsonl"},
                "metric": "python:checks.py:right",
                "nodes": {"sort": {"predict": "text -> label"}},
                "optimize": [{"random": {"trials": 3}}],
                "budget": {"calls": 500},
                "concurrency": 2,
                **spec,
            },
            indent=1,
        )
    )
    return path


@pytest.mark.parametrize(("body", "words", "place"), BROKEN.values(), ids=BROKEN)
def test_a_metric_that_never_works_ends_the_run(body: str, words: str, place: str, tmp_path: Path) -> None:
    path, script = workflow_file(tmp_path, body), Script(lambda request: "a")
    with pytest.raises(SpecError, match="failed on each of the first 5 rows") as caught:
        optimize(path, database=tmp_path / "run.db", pool=script, options=Options(out=str(tmp_path / "o.yaml")))
    error = caught.value
    assert words in error.message and place in error.message
    assert error.file == str(path) and '"metric"' in path.read_text().splitlines()[(error.line or 0) - 1]
    assert len(script.requests) <= 5 + 2, "those under way were waited for"
    with Store(tmp_path / "run.db") as store:
        row = store.find_run("last")
    assert row["status"] == "failed" and words in json.loads(row["report"])["error"]
    assert not (tmp_path / "o.yaml").exists()


def test_with_fewer_rows_all_of_them_decide(tmp_path: Path) -> None:
    path, script = workflow_file(tmp_path, BROKEN["raises"][0], rows=9), Script(lambda request: "a")
    with pytest.raises(SpecError, match="each of the first 3 rows"):
        options = Options(out=str(tmp_path / "o.yaml"), allow_unproved=True)
        optimize(path, database=tmp_path / "run.db", pool=script, options=options)
    assert len(script.requests) == 3


def test_a_metric_that_fails_on_some_rows_is_named_with_its_words_and_count(tmp_path: Path) -> None:
    body = "    return 1.0 if example['number'] % 3 else 1 / 0\n"
    report = optimize(
        workflow_file(tmp_path, body),
        database=tmp_path / "run.db",
        pool=Script(lambda request: "a"),
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    assert report.status == "finished"
    (warning,) = (line for line in report.lines() if "the metric failed on" in line)
    assert "ZeroDivisionError: division by zero" in warning and "checks.py, line 2" in warning
    store = Store(tmp_path / "run.db")
    results = [(row["example"], row["failure"]) for row in store.rows("select example, failure from results")]
    store.close()
    failed = {example for example, failure in results if failure == "metric"}
    assert failed and f"on {len(failed)} of the {len({example for example, _ in results})} rows" in warning


@pytest.mark.slow
def test_the_command_line_says_what_was_raised(tmp_path: Path) -> None:
    path = workflow_file(tmp_path, BROKEN["raises"][0])
    for command in ("optimize", "eval"):
        done = run_module("workbench", command, str(path), cwd=tmp_path, timeout=100)
        assert done.returncode == 2, done.stderr
        assert "KeyError: 'labels'" in done.stderr and "checks.py, line 2" in done.stderr and "w.yaml:" in done.stderr


def test_one_row_that_works_keeps_a_run_going() -> None:
    faults = MetricFaults(None)
    for row in "abcd":
        faults.raised(Example(row, {}), ValueError("no"))
    faults.check(5)
    faults.scored(Example("e", {}))
    faults.raised(Example("f", {}), ValueError("no"))
    faults.check(5)
    assert faults.lines() == ["the metric failed on 5 of the 6 rows that it was given, e.g. a: ValueError: no"]


@pytest.mark.parametrize("value", [None, "right", 3, -0.1, float("nan"), [], {"score": 1}])
def test_what_is_no_score_is_named(value: Any) -> None:
    with pytest.raises(ValueError, match=r"a metric must return a number in \[0, 1\], not"):
        as_score(value)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"judge": {"field": 3}}, "'field' should be a valid string, not 3"),
        ({"judge": {"field": "label", "scale": "5"}}, "'scale' should be 5, not the text '5'"),
        ({"checklist": {"field": "a", "ask": "no"}}, "'ask' should be False, not the text 'no'"),
    ],
)
def test_an_option_of_another_type_is_refused_when_the_file_is_read(written: Any, told: str, tmp_path: Path) -> None:
    path, script = workflow_file(tmp_path, "    return 1.0\n", metric=written), Script(lambda request: "a")
    with pytest.raises(SpecError, match=told) as caught:
        optimize(path, database=tmp_path / "run.db", pool=script)
    assert '"metric"' in path.read_text().splitlines()[(caught.value.line or 0) - 1] and not script.requests

"""`workbench show`, `diff` and `export`: what a stored run tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.helpers.planted import plant
from tests.helpers.stored_runs import StoredLM, write

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.run import Options, optimize


def test_an_export_says_what_it_wrote_and_leaves_no_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.run import history

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    database = ["--db", str(tmp_path / "run.db")]
    file = tmp_path / "best.yaml"
    done = CliRunner().invoke(cli, ["export", "last", "--out", str(file), *database])
    assert done.output == f"wrote {file}\n" and file.is_file()
    refuse = True

    def exporter(workflow: object, out: Path) -> None:
        out.mkdir(parents=True)
        if refuse:
            raise SpecError("not this one")
        (out / "serve.sh").write_text("")

    get = history.plugins().get
    monkeypatch.setattr(history.plugins(), "get", lambda hook, name: exporter if name == "x" else get(hook, name))
    words = ["export", "last", "--format", "x", "--out", str(tmp_path / "new" / "folder"), *database]
    assert isinstance(CliRunner().invoke(cli, words).exception, SpecError)
    assert not (tmp_path / "new").exists()
    refuse = False
    assert CliRunner().invoke(cli, words).output == f"wrote {tmp_path / 'new' / 'folder'}: serve.sh\n"


def test_a_format_that_is_not_there_is_named_beside_those_that_are(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=100)
    for form, hint in (("yml", "Did you mean 'yaml'?"), ("sqlite", "Known: atif, dspy")):
        found = CliRunner().invoke(cli, ["export", "--format", form, "--db", str(tmp_path / "run.db")])
        assert f"there is no format '{form}'. {hint}" in str(found.exception)


def test_show_says_what_the_report_said(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    shown = CliRunner().invoke(cli, ["show", "--db", str(tmp_path / "run.db")])
    assert shown.exit_code == 0, shown.output
    for line in report.lines():
        assert line in shown.output


def test_show_names_the_failed_rows_with_what_they_said(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400, proof={"when_unchanged": "test"})
    args = ["show", "--failures", "--db", str(tmp_path / "run.db")]
    failed = json.loads(CliRunner().invoke(cli, [*args, "--json"]).output)["failures"]
    assert len(failed) > 10 and all(f["inputs"]["text"].startswith("test ") for f in failed)
    shown = CliRunner().invoke(cli, args).output
    first = failed[0]
    assert f'{first["handle"]}  score 0.000  {first["feedback"]}\n    text: "{first["inputs"]["text"]}"\n' in shown
    assert "candidates:" not in shown and "gain" not in shown, "only what was asked for (friction 38)"
    with (tmp_path / "test.jsonl").open("a") as file:
        file.write('{"text": "one more: a a-thing", "label": "a"}\n')
    others = CliRunner().invoke(cli, [*args, "--json"])
    assert others.exit_code == 0 and all(f["inputs"] is None for f in json.loads(others.output)["failures"])


def test_show_names_the_failed_rows_of_val_where_none_was_tested(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    shown = CliRunner().invoke(cli, ["show", "--failures", "--json", "--db", str(tmp_path / "run.db")])
    failed = json.loads(shown.output)["failures"]
    assert failed and {row["split"] for row in failed} == {"val"}


def test_what_was_written_out_but_not_changed_is_no_change(tmp_path: Path) -> None:
    """The search sets a value that is in force anyway, beside one that helps."""
    space = {"nodes.sort.samples": [1], "nodes.sort.instructions": ["Plain.", "Better."]}
    report, _ = plant(
        tmp_path,
        lambda r: 0.9 if "Better" in str(r.messages[0]) else 0.2,
        {"random": {"trials": 6}},
        calls=500,
        search=space,
    )
    assert [c[0] for c in report.changes] == ["nodes.sort.instructions"]


def test_friction_38_a_run_that_its_metric_ended_asks_for_a_new_one_and_compares_as_untested(tmp_path: Path) -> None:
    """Its code would have to change, with which no run is resumed."""
    file = write("bootstrap", tmp_path)
    value = json.loads(file.read_text())
    (tmp_path / "wrong.py").write_text("def score(example, prediction):\n    raise KeyError('gold')\n")
    file.write_text(json.dumps({**value, "metric": "python:wrong.py:score"}))
    database = tmp_path / "run.db"
    with pytest.raises(SpecError, match="the metric failed on each of the first"):
        optimize(file, options=Options(out=str(tmp_path / "o.yaml")), database=database, pool=StoredLM())
    shown = CliRunner().invoke(cli, ["show", "--db", str(database)]).output
    assert "start a new run" in shown and "workbench resume" not in shown and "SpecError" not in shown
    compared = CliRunner().invoke(cli, ["compare", "last", "--db", str(database)])
    assert "has stored no rows" in str(compared.exception) and "gain" not in compared.output

"""`workbench run` and `workbench eval`: one row, or one split."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.helpers.planted import plant

from workbench.cli import cli, main
from workbench.run import prepare

HEAD = "name: l\ndata: {file: rows.jsonl, split: {train: 3, val: 3, test: 3}}\nmetric: exact_match(label)\nnodes:\n"
PROGRAM = "  c: {code: 'text -> label', source: \"def f(text):\\n    return 'SOMETHING'\"}\n"


def test_an_input_without_a_name_is_refused(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    found = CliRunner().invoke(cli, ["run", str(tmp_path / "workflow.yaml"), "--input", "a"])
    assert found.exit_code == 2 and "must have the form FIELD=VALUE" in found.output


@pytest.mark.slow
def test_a_single_run_shows_the_row_that_it_took(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "t{i}", "label": "label {i}"}}\n' for i in range(9)))
    (tmp_path / "workflow.yaml").write_text(HEAD + PROGRAM)
    words = ["run", str(tmp_path / "workflow.yaml"), "--db", str(tmp_path / "run.db")]
    taken = prepare(tmp_path / "workflow.yaml", ())[2].dataset.val[1]
    done = CliRunner().invoke(cli, [*words, "--example", "1"])
    assert done.output.startswith(f"row 1 of val\n  text: {taken['text']}\n  label: {taken['label']}\n"), done.output
    assert "of val" not in CliRunner().invoke(cli, [*words, "--input", "text=x"]).output


def test_an_eval_that_nobody_answered_has_no_score(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": f"{i}", "label": "a"}) + "\n" for i in range(9)))
    (tmp_path / "w.yaml").write_text(
        json.dumps(
            {
                "name": "one",
                "data": {"file": "rows.jsonl", "split": {"train": 3, "val": 3, "test": 3}},
                "budget": {"calls": 20},
                "lm": {"model": "openai/x", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
                "metric": "exact_match(label)",
                "nodes": {"sort": {"predict": "text -> label"}},
            }
        )
    )
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(tmp_path / "w.yaml"), "--db", str(tmp_path / "e.db")])
    assert ended.value.code == 1


def test_a_row_and_inputs_exclude_each_other(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    found = CliRunner().invoke(cli, ["run", str(tmp_path / "workflow.yaml"), "--input", "text=a", "--example", "1"])
    assert found.exit_code == 2 and "cannot be combined" in found.output

"""Files that a command writes: what somebody else wrote, and what the command reads, is not lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from workbench.base.files import begins_with, check_output
from workbench.cli import cli
from workbench.errors import SpecError

MINE = "# mine\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a workflow that needs no model."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f'{{"text": "{n} parcels", "label": "{n}"}}\n' for n in range(14))
    (tmp_path / "rows.jsonl").write_text(rows)
    (tmp_path / "w.yaml").write_text(
        "name: my task\nlm: bundled/nano\ndata: {file: rows.jsonl, split: {train: 4, val: 4, test: 6}}\n"
        "metric: exact_match(label)\nnodes: {a: {predict: 'text -> label', instructions: Sort.}}\nbudget: {calls: 60}\n"
    )
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def refuses(result: Result, said: str) -> bool:
    """Before anything was paid for: there is no run."""
    runs = call("runs", "list", "--json").stdout if Path("workbench.db").exists() else "[]"
    return isinstance(result.exception, SpecError) and said in str(result.exception) and '"run"' not in runs


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
@pytest.mark.parametrize("out", ["w.yaml", "./sub/../w.yaml", "link.yaml", "hard.yaml", "rows.jsonl"])
def test_u9_the_input_is_never_replaced(place: Path, out: str, more: list[str]) -> None:
    (place / "sub").mkdir()
    (place / "link.yaml").symlink_to("w.yaml")
    os.link("w.yaml", "hard.yaml")
    before = {path.name: path.read_text() for path in place.glob("*.*l")}
    assert refuses(call("optimize", "w.yaml", "--out", out, *more), "is read by this command")
    assert before == {path.name: path.read_text() for path in place.glob("*.*l")}


@pytest.mark.parametrize(
    ("command", "out"),
    [
        (["optimize", "w.yaml"], "optimized.yaml"),
        (["optimize", "w.yaml"], "optimized.unproved.yaml"),
        (["optimize", "w.yaml", "--out", "notes.txt"], "notes.txt"),
        (["eval", "w.yaml", "--junit", "x.xml"], "x.xml"),
        (["eval", "w.yaml", "--markdown", "x.md"], "x.md"),
        (["predict", "w.yaml", "rows.jsonl", "--out", "x.jsonl"], "x.jsonl"),
        (["report", "--out", "x.csv"], "x.csv"),
        (["report"], "report.html"),
        (["data", "induce", "rows.jsonl"], "metrics.yaml"),
        (["data", "synthesize", "w.yaml", "--out", "x.jsonl"], "x.jsonl"),
        (["agent", "slots", "w.yaml", "--out", "x.yaml"], "x.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_u9_a_file_of_somebody_else_is_not_replaced(place: Path, command: list[str], out: str) -> None:
    (place / out).write_text(MINE)
    assert refuses(call(*command), "exists")
    assert (place / out).read_text() == MINE


def test_u9_predict_never_replaces_its_rows(place: Path) -> None:
    assert refuses(call("predict", "w.yaml", "rows.jsonl", "--out", "rows.jsonl", "--overwrite"), "is read by this")


def test_u9_another_name_is_offered_that_works(place: Path) -> None:
    (place / "optimized.yaml").write_text(MINE)
    said = call("optimize", "w.yaml").exception
    assert isinstance(said, SpecError) and "--out optimized-my-task.yaml" in (said.hint or "")


def test_u9_what_the_command_wrote_and_what_the_user_gave_up_are_replaced(tmp_path: Path) -> None:
    out = tmp_path / "x.md"
    check_output(out, inputs=[out, tmp_path / "none", "reader:place"])
    out.write_text("# t: run 01234567\n")
    check_output(out, ours=begins_with("# .*: run [0-9a-f]{8}\n"))
    check_output(out, overwrite=True)
    with pytest.raises(SpecError, match="--junit .*exists"):
        check_output(out, "--junit", ours=begins_with("# other"))
    out.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="exists"):
        check_output(out, ours=begins_with("#"))


@pytest.mark.slow
def test_u9_the_commands_replace_their_own_files(place: Path) -> None:
    for _ in range(2):
        assert call("eval", "w.yaml", "--junit", "x.xml", "--markdown", "x.md").exit_code == 0
        assert call("optimize", "w.yaml", "--allow-unproved").exit_code == 0
        for ending in ("html", "md", "json", "csv"):
            assert call("report", "--out", f"r.{ending}").exit_code == 0
    Path("optimized.yaml").write_text(MINE)
    assert call("optimize", "w.yaml", "--allow-unproved", "--overwrite").exit_code == 0
    assert Path("optimized.yaml").read_text() != MINE

"""Rows of data made to control a terminal, a spreadsheet, a parser or a database. They are shown with escapes, given to
models as they are, and come out of `--json` as they were; NaN is refused at its line if it is read."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from workbench.base.text import visible
from workbench.cli import cli
from workbench.errors import SpecError

FILE = """\
name: hostile rows
lm: bundled/nano
data: {data}
metric: exact_match(label)
nodes:
  sort: {{predict: "text -> label: Literal['a', 'b']"}}
optimize: [{{random: {{trials: 1}}}}]
budget: {{calls: 100}}
"""
SPLIT = "{{file: {}, split: {{train: 3, val: 3, test: 3}}}}"
#: name: (cell, part of what is shown of it)
CELLS = {
    "1 MB": ("x" * 1_000_000, "xxxx"),
    "NUL": ("a\0b", "a\\x00b"),
    "control": ("a\x07\x08\x7f\rb", "a\\x07\\x08\\x7f\\x0db"),
    "ANSI": ("\x1b[2J\x1b[31mred", "\\x1b[2J\\x1b[31mred"),
    "OSC 8": ("\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\", "\\x1b]8;;http://evil\\x1b\\here"),
    "OSC 52": ("\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07"),
    "C1": ("\x9b2J\x9d52;c;aGk=\x9c", "\\x9b2J\\x9d52;c;aGk=\\x9c"),
    "bidi": ("a\u202eb\u2066c\u200f", "a\\u202eb\\u2066c\\u200f"),
    "invisible": ("a\u200bb\u3164c\U000e0041", "a\\u200bb\\u3164c\\U000e0041"),
    "CSV formula": ("=cmd|'/c calc'!A0", "=cmd|'/c calc'!A0"),
    "lines like ours": ("x\nFailed (code): forged\n", "x\n    Failed (code): forged"),
    "lone surrogate": ("a\ud800b", "a\\ud800b"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*words: str) -> Result:
    done = CliRunner().invoke(cli, [*words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert visible(done.output) == done.output, "nothing that a terminal obeys"
    return done


WORDS = "apple brick cloud drift ember flint grove hinge ivory joker kiosk".split()  # no row is like another


def write(path: Path, cells: Sequence[str], repeated: int = 9) -> None:
    rows = [
        {"text": f"{word * repeated} {cell}", "label": "neither", "number": 1}
        for word, cell in zip(WORDS, cells, strict=False)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.fault("hostile-rows")
@pytest.mark.slow
@pytest.mark.parametrize("names", [pytest.param(["1 MB"] * 3, marks=pytest.mark.slow), list(CELLS)[1:]], ids=len)
def test_hostile_cells_are_shown_with_escapes_and_kept_as_they_are(names: list[str], folder: Path) -> None:
    """Each cell is in a row of train, of val and of test."""
    cells = [CELLS[name][0] for name in names]
    for repeated, split in enumerate(("train", "val", "test"), 7):
        write(folder / f"{split}.jsonl", cells, repeated)
    (folder / "w.yaml").write_text(FILE.format(data="{train: train.jsonl, val: val.jsonl, test: test.jsonl}"))
    assert invoke("validate", "w.yaml").exit_code == 0
    for n, name in enumerate(names):
        cell, shown = CELLS[name]
        said = invoke("run", "w.yaml", "--example", str(n))
        assert said.output.splitlines()[1].startswith("  text: ") and shown in said.output, name
        row = json.loads(invoke("run", "w.yaml", "--example", str(n), "--json").output)["row"]
        assert row["text"].endswith(f" {cell}"), name
    done = invoke("optimize", "w.yaml", "--set", "proof.when_unchanged=test", "--allow-unproved")
    assert done.exit_code == 0, done.output
    assert invoke("show", "--failures", "--calls", "99").exit_code == 0
    found = json.loads(invoke("show", "--failures", "--calls", "99", "--json").output)
    if "1 MB" not in names:  # whose rows are nearly the same, and so not tested
        kept = {failure["inputs"]["text"].partition(" ")[2] for failure in found["failures"]}
        assert kept == set(cells)
    asked = [call["messages"][-1]["content"] for call in found["calls"]]
    assert all(any(cell.strip() in text for text in asked) for cell in cells), "the model reads them as they are"
    assert invoke("validate", "optimized.yaml").exit_code == 0


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_refused_at_its_line_where_it_is_read(number: str, folder: Path) -> None:
    text = FILE.format(data=SPLIT.format("rows.jsonl"))
    (folder / "w.yaml").write_text(text)
    lines = [f'{{"text": "x{n}", "label": "a", "number": {n if n < 9 else number}}}\n' for n in range(10)]
    (folder / "rows.jsonl").write_text("".join(lines))
    assert CliRunner().invoke(cli, ["validate", "w.yaml"]).exit_code == 0, "nobody reads it"
    (folder / "w.yaml").write_text(text.replace("text -> label", "text, number -> label"))
    refused = CliRunner().invoke(cli, ["validate", "w.yaml"]).exception
    assert isinstance(refused, SpecError) and (refused.line, Path(refused.file or "").name) == (10, "rows.jsonl")


@pytest.mark.slow
def test_cells_of_a_table_are_read_as_they_are_and_go_nowhere_else_as_a_table(folder: Path) -> None:
    """A formula would run in a spreadsheet. A run writes JSON and YAML, in which it is a text, and no CSV. `predict`
    does (tests/inference/test_file_to_file.py)."""
    cells = [cell for name, (cell, _) in CELLS.items() if name not in ("1 MB", "lone surrogate", "control")]
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *((cell, "ab"[n % 2]) for n, cell in enumerate(cells))])
    (folder / "w.yaml").write_text(FILE.format(data=SPLIT.format("rows.csv")))
    seen = [json.loads(invoke("run", "w.yaml", "--example", str(n), "--json").output)["row"]["text"] for n in range(3)]
    assert set(seen) <= set(cells) and len(set(seen)) == 3
    assert invoke("optimize", "w.yaml", "--allow-unproved").exit_code == 0
    assert sorted(p.suffix for p in folder.iterdir()) == [".csv", ".db", ".yaml", ".yaml"]

"""`workbench predict` reads rows as the workflow file says of its data (I7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.inference.rows_file import read_rows_file

SEMICOLONS, COMMAS = "text;note\na,b;x\n", "text,note\na,x\n"
DELIMITER = {"options": {"delimiter": ";"}}


def read(folder: Path, name: str, content: str | bytes, data: Any, *inputs: str) -> Any:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_rows_file(str(folder / name), data, inputs or ("text",))[1]


@pytest.mark.parametrize(
    ("name", "content", "data"),
    [
        ("a.csv", SEMICOLONS, DELIMITER),
        ("a.CSV", SEMICOLONS, {"file": "b.csv", **DELIMITER}),
        ("a.csv", SEMICOLONS, {"train": "b.CSV", "val": "c.csv", **DELIMITER}),
        ("a.csv", "text,note\nä,x\n".encode("latin-1"), {"file": "b.csv", "options": {"encoding": "latin-1"}}),
        ("a.csv", COMMAS, {"file": "b.jsonl", "options": {"encoding": "utf-16"}}),
        ("a.csv", COMMAS, {"file": "hf:b", "options": {"split": "train"}}),
        ("a.jsonl", '{"text": "a", "note": "x"}', {"file": "b.csv", **DELIMITER}),
        ("a.ndjson", '{"text": "a", "note": "x"}', {"file": "b.jsonl", "options": {"encoding": "utf-8"}}),
        ("a.csv", COMMAS, {"file": "b.csv", "options": {"types": {"label": "json"}}}),
        ("a.csv", COMMAS, "b.csv"),
        ("a.csv", COMMAS, {"file": 3, "options": "odd", "fields": []}),
        ("a.csv", COMMAS, None),
    ],
)
def test_options_of_the_data_hold_for_a_file_of_their_kind_I7(
    name: str, content: Any, data: Any, tmp_path: Path
) -> None:
    (row,) = read(tmp_path, name, content, data)
    assert set(row) == {"text", "note"} and row["note"] == "x"


def test_types_hold_for_columns_that_are_read_I7(tmp_path: Path) -> None:
    data = {"file": "b.csv", "options": {"types": {"n": "int", "label": "int"}}}
    assert read(tmp_path, "a.csv", "text,n\na,1\n", data, "text", "n") == [{"text": "a", "n": 1}]
    renamed = {**data, "fields": {"count": "n", "gold": "label"}}
    assert read(tmp_path, "a.csv", "text,n\na,1\n", renamed, "count") == [{"text": "a", "n": 1, "count": 1}]


def test_names_of_the_data_hold_where_the_row_has_them_I7(tmp_path: Path) -> None:
    data = {"file": "b.csv", "fields": {"text": "body.content", "label": "gold"}}
    rows = '{"body": {"content": "a"}}\n{"text": "b"}\n{"body": {}}\n'
    found = read(tmp_path, "a.jsonl", rows, data)
    assert [row.get("text") for row in found] == ["a", "b", None]


def invoke(folder: Path, name: str, *words: str, **data: Any) -> Result:
    tree = {"lm": "bundled/nano", "nodes": {"sort": {"predict": "text -> answer"}}, **({"data": data} if data else {})}
    (folder / "w.yaml").write_text(json.dumps(tree))
    out = folder / "out.JSONL"
    return CliRunner().invoke(
        cli, ["predict", str(folder / "w.yaml"), str(folder / name), "--out", str(out), "--overwrite", *words]
    )


def test_predict_can_read_what_it_advises_I7(tmp_path: Path) -> None:
    (tmp_path / "IN.CSV").write_text("body;note\na, b;x\n;\n")
    refused = invoke(tmp_path, "IN.CSV")
    assert isinstance(refused.exception, SpecError) and "options: {delimiter: ';'}" in str(refused.exception)
    names = {"fields": {"text": "body"}}
    assert invoke(tmp_path, "IN.CSV", options={"delimiter": ";"}, **names).exit_code == 0
    (row,) = map(json.loads, (tmp_path / "out.JSONL").read_text().splitlines())
    assert list(row) == ["body", "note", "answer", "failure"] and row["body"] == "a, b" and row["failure"] is None
    set_ = invoke(tmp_path, "IN.CSV", "--set", "data.options.delimiter=;", file="x.csv", **names)
    assert set_.exit_code == 0, set_.exception

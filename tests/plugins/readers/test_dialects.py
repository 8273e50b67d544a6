"""CSV files as spreadsheets write them: other delimiters and encodings (friction 46)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.readers import listed

from workbench.errors import SpecError
from workbench_readers import json_files, tables

read_json = listed(json_files.read_json)
read_jsonl = listed(json_files.read_jsonl)
read_csv = listed(tables.read_csv)
read_tsv = listed(tables.read_tsv)


def test_a_semicolon_file_says_which_option_to_write_friction_46(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text;label\na;b\n")
    with pytest.raises(SpecError) as caught:
        read_csv(str(path), {})
    assert caught.value.line == 1 and "text;label" in caught.value.message
    assert "Is the delimiter ';'? Write data: {options: {delimiter: ';'}}." in (caught.value.hint or "")
    assert read_csv(str(path), {"delimiter": ";"}) == [{"text": "a", "label": "b"}]
    assert read_csv(str(path), {"delimiter": ","}) == [{"text;label": "a;b"}]  # who says so means it


@pytest.mark.parametrize(
    ("read", "text", "shown"), [(read_csv, "a\tb\n1\t2\n", '"\\t"'), (read_tsv, "a,b\n1,2\n", "','")]
)
def test_a_tab_and_a_comma_are_named_too(read, text: str, shown: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read(str(path), {})
    assert f"delimiter: {shown}" in (caught.value.hint or "")


def test_a_column_of_one_name_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\na\n")
    assert read_csv(str(path), {}) == [{"text": "a"}]


@pytest.mark.parametrize(
    ("read", "text", "rows"),
    [
        (read_csv, "text\nblé\n", [{"text": "blé"}]),
        (read_jsonl, '{"text": "blé"}\n', [{"text": "blé"}]),
        (read_json, '[{"text": "blé"}]', [{"text": "blé"}]),
    ],
)
def test_latin_1_is_read_by_its_encoding_and_refused_with_the_option_without_friction_46(
    read, text: str, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError) as caught:
        read(str(path), {})
    assert "data: {options: {encoding: latin-1}}" in (caught.value.hint or "")
    assert read(str(path), {"encoding": "latin-1"}) == rows


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8"])
def test_a_mark_at_the_beginning_is_no_part_of_the_first_name(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text\na\n".encode("utf-8-sig"))
    assert read_csv(str(path), {"encoding": encoding}) == read_csv(str(path), {}) == [{"text": "a"}]


@pytest.mark.parametrize("encoding", ["latin-99", "base64", 7, "no\0such"])
def test_an_unknown_encoding_is_refused(encoding: object, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\na\n")
    with pytest.raises(SpecError, match="there is no encoding"):
        read_csv(str(path), {"encoding": encoding})


def test_bytes_that_the_named_encoding_does_not_have_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text\na\n\xe9\n")
    with pytest.raises(SpecError, match="not ascii") as caught:
        read_csv(str(path), {"encoding": "ascii"})
    assert caught.value.line == 3

"""Tables as spreadsheets and other programs write them: blank rows, unnamed columns, marks and encodings."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.readers import listed

from workbench.errors import SpecError
from workbench_readers import json_files, tables

read_json = listed(json_files.read_json)
read_jsonl = listed(json_files.read_jsonl)
read_csv = listed(tables.read_csv)
read_tsv = listed(tables.read_tsv)

WANTED = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


def read(folder: Path, content: str | bytes, reader: Any = read_csv, **options: Any) -> Any:
    path = folder / "rows"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [*reader(str(path), options)]


def refusal(folder: Path, content: str | bytes, reader: Any = read_csv, **options: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read(folder, content, reader, **options)
    assert caught.value.hint
    return caught.value


def test_what_a_spreadsheet_adds_is_no_row_and_no_column_I1_I6(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, text in enumerate(
        [
            "text,label\na,x\n,\nb,y\n,\n,\n",
            ",\n\ntext,label\na,x\n , \t\nb,y\n",
            'text,label\na,x\n"",""\nb,y\n   \n',
            "text,label\r\na,x\r\n,,,,\r\nb,y,,\r\n\r\n",
            "text,label,,\na,x,,\nb,y, ,\n,,,\n",
            "text,label,,\na,x\nb,y\n",
            "text,,label\na,,x\nb, ,y\n",
            ",text,label\n,a,x\n,b,y\n",
            " text , label \na,x\nb,y\n",
            '" text",\u00a0label\na,x\nb,y\n',
            "sep=,\ntext,label\na,x\nb,y\n",
            "sep=;\r\ntext;label\r\na;x\r\nb;y\r\n",
            '"sep=|"\ntext|label\na|x\nb|y\n',
            "SEP=\t\ntext\tlabel\na\tx\nb\ty\n",
        ]
    ):
        with subtests.test(text=text):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert read(folder, text) == WANTED


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("text,label,,\na,x,,\nb,y,,z\n", "column 4 has no name in the header, and contains 'z'", 3),
        ("text,,label\na,,x\nb,odd,y\n", "column 2 has no name in the header, and contains 'odd'", 3),
        ("Tickets,,\ntext,label,other\n", "column 2 has no name in the header, and contains 'label'", 2),
        ("text, text,,\na,x,,\n", "'text' occurs twice", 1),
        ("text,label\na,x,odd\n", "3 cells, the header has 2", 2),
        ("text,label\na\n", "1 cells, the header has 2", 2),
        ("sep=;\ntext;label\na;x;y\n", "3 cells", 3),
        (',,\n\n,\ntext,label\n"a\nb",x\nc\n', "1 cells", 7),
    ],
)
def test_what_may_be_data_is_refused_at_its_line_I6(text: str, message: str, line: int, tmp_path: Path) -> None:
    error = refusal(tmp_path, text)
    assert message in error.message and error.line == line


def test_the_index_that_a_library_writes_is_kept_I6(tmp_path: Path) -> None:
    assert read(tmp_path, ",text\n0,a\n1,b\n") == [{"": "0", "text": "a"}, {"": "1", "text": "b"}]
    assert read(tmp_path, ",text,\n0,a,\n") == [{"": "0", "text": "a"}], "beside a blank column"


def test_who_names_a_delimiter_means_it_and_not_the_first_line_I6(tmp_path: Path) -> None:
    assert read(tmp_path, "sep=;\ntext,label\na,x;y\n", delimiter=",") == [{"text": "a", "label": "x;y"}]
    assert read(tmp_path, "sep=;\ntext;label\na;x\n", read_tsv) == [{"text": "a", "label": "x"}]
    assert read(tmp_path, "sep,b\n1,2\n") == [{"sep": "1", "b": "2"}]


def test_a_blank_line_of_a_cell_is_data_I1(tmp_path: Path) -> None:
    assert read(tmp_path, 'text,label\n"a\n,\n\nb",x\n') == [{"text": "a\n,\n\nb", "label": "x"}]


TABLE = "text,label\nä,x\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("told", [{}, {"encoding": "utf-8"}, {"encoding": "cp1252"}])
def test_the_mark_at_the_beginning_names_the_encoding_I8(encoding: str, told: dict[str, str], tmp_path: Path) -> None:
    if encoding == "utf-8":
        told = {}
    assert read(tmp_path, TABLE.encode(encoding), **told) == [{"text": "ä", "label": "x"}]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_of_both_orders_is_read_by_its_mark_or_by_its_name_I8(encoding: str, tmp_path: Path) -> None:
    content = TABLE.encode(encoding)
    marked = "\ufeff".encode(encoding) + content
    assert read(tmp_path, marked) == read(tmp_path, marked, encoding=encoding) == [{"text": "ä", "label": "x"}]
    error = refusal(tmp_path, content)
    assert "UTF-16 without a mark" in error.message and f"encoding: {encoding}" in (error.hint or "")
    assert read(tmp_path, content, encoding=encoding) == [{"text": "ä", "label": "x"}]


@pytest.mark.parametrize(
    ("content", "message", "place", "hint"),
    [
        (b"text\na\xe9\n", "not UTF-8", (2, 2), "encoding: latin-1}}, or cp1252 for Windows"),
        (b"text\n\x93a\x94\n", "not UTF-8", (2, 1), "encoding: cp1252}} for Windows, or latin-1"),
        ("text\nab".encode("utf-16") + b"\x00", "mark of UTF-16", (2, 3), "UTF-8"),
        (b"\xef\xbb\xbftext\n\xff", "mark of UTF-8 and is not UTF-8", (2, 1), "UTF-8"),
    ],
)
def test_bytes_of_another_encoding_are_refused_where_they_stand_I8(
    content: bytes, message: str, place: tuple[int, int], hint: str, tmp_path: Path
) -> None:
    error = refusal(tmp_path, content)
    assert message in error.message and (error.line, error.column) == place and hint in (error.hint or "")


@pytest.mark.parametrize(("reader", "text"), [(read_csv, "a\nx\0y\n"), (read_csv, "a,b\n\0,\0\n")])
def test_a_null_in_a_cell_is_data_I8(reader: Any, text: str, tmp_path: Path) -> None:
    assert "\0" in read(tmp_path, text)[0].popitem()[1]


@pytest.mark.parametrize("reader", [read_json, read_jsonl])
@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1}, {"a": 2}]',
        '\n[\n {"a": 1},\n {"a": 2}\n]\n',
        '{"a": 1}\n{"a": 2}\n',
        '\ufeff\n{"a": 1} \r\n\n  \n{"a": 2}',
    ],
)
def test_lists_and_lines_of_objects_are_told_apart_by_what_is_in_the_file_I5(
    reader: Any, text: str, tmp_path: Path
) -> None:
    assert read(tmp_path, text, reader) == [{"a": 1}, {"a": 2}]
    assert read(tmp_path, text.encode("utf-16"), reader) == [{"a": 1}, {"a": 2}]


def test_lines_of_lists_are_no_rows_I5(tmp_path: Path) -> None:
    assert "must be an object" in refusal(tmp_path, '[{"a": 1}]\n[{"a": 2}]\n', read_jsonl).message
    assert "not JSON" in refusal(tmp_path, '{"a": 1}\n{"a": }\n', read_json).message


def test_a_packed_file_is_unpacked_I5(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"a": 1}\n')
    assert read(tmp_path, packed, read_jsonl) == [{"a": 1}]
    assert "gzip" in refusal(tmp_path, packed[:-9], read_jsonl).message


@pytest.mark.parametrize("reader", [read_json, read_jsonl])
def test_numbers_that_are_none_are_null_and_noted_where_they_stand_I3(reader: Any, tmp_path: Path) -> None:
    first = '{"a": "NaN", "b": [1, -Infinity], "c": 1e100, "e": 1e400}'
    rows = read(tmp_path, f'{first}\n{{"a": "x", "d": {{"e": NaN}}, "b": 1e999}}\n', reader)
    assert rows == [{"a": "NaN", "b": [1, None], "c": 1e100, "e": None}, {"a": "x", "d": {"e": None}, "b": None}]
    assert [{name: (e.line, e.column) for name, e in row.holes.items()} for row in rows] == [
        {"b": (1, 23), "e": (1, 52)},
        {"d.e": (2, 23), "b": (2, 34)},
    ]
    assert [str(rows[0].holes[name].message) for name in ("b", "e")] == [
        "'b' is -Infinity, which is not JSON",
        "'e' is too large a number",
    ]


def test_numbers_that_are_none_are_found_in_a_list_of_many_lines_I3(tmp_path: Path) -> None:
    rows = read(tmp_path, '{"x": NaN, "rows": [\n {"a": 1},\n {"a": "NaN",\n  "b": NaN}\n]}', read_json, path="rows")
    error = rows[1].holes["b"]
    assert rows[1] == {"a": "NaN", "b": None} and (error.line, error.column) == (4, 8)


def test_i_sibling_characters_of_no_width_are_blank(tmp_path: Path) -> None:
    assert read(tmp_path, '"\ufefftext",label\u200b\na,x\nb,y\n\u200b,\n\u00a0,\ufeff\n') == WANTED


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 123\n", "git lfs pull"),
        ("rows.csv", "PK\x03\x04xx", "Name it .xlsx, or unpack it."),
        ("rows.csv", "<!DOCTYPE html><html><body>404</body></html>", "Download the file itself"),
        ("rows.csv", "Tickets 2024\ntext,label\na,x\n", "If the first line is no header"),
        ("rows.jsonl", '// from the export\n{"text": "a"}\n', "JSON has no comments"),
        ("rows.jsonl", '{"text": "a"},\n{"text": "b"},\n', "no comma behind it"),
        ("rows.json", '{"meta": {"n": 1}, "rows": [{"text": "a"}]}', "{options: {path: rows}}"),
        ("rows.json", '{"text": ["a"], "label": ["x"]}', "orient='records'"),
        ("rows.json", '{"text": {"0": "a"}, "label": {"0": "x"}}', "orient='records'"),
    ],
)
def test_a_file_of_another_kind_says_what_it_is(name: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode())
    reader = {"csv": read_csv, "jsonl": read_jsonl, "json": read_json}[name.partition(".")[2]]
    with pytest.raises(SpecError) as caught:
        reader(str(tmp_path / name), {})
    assert said in (caught.value.hint or "")


def test_a_column_may_be_called_as_a_file_of_another_kind_begins(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("PAR1,label\na,x\n")
    assert read_csv(str(tmp_path / "rows.csv"), {})[0] == {"PAR1": "a", "label": "x"}

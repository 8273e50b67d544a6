"""Excel's files, as people fill them in."""

from __future__ import annotations

import datetime
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.readers import listed

from workbench.errors import SpecError
from workbench_readers import spreadsheets

read_xlsx = listed(spreadsheets.read_xlsx)

openpyxl = pytest.importorskip("openpyxl")


def save(folder: Path, **sheets: list[list[Any]]) -> Any:
    """Write a book, and return it for further changes."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, lines in sheets.items():
        sheet = book.create_sheet(name)
        for line in lines:
            sheet.append(line)
    book.save(folder / "rows.xlsx")
    return book


def read(folder: Path, **options: Any) -> Any:
    return read_xlsx(str(folder / "rows.xlsx"), options)


def refusal(folder: Path, **options: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read(folder, **options)
    assert caught.value.hint and caught.value.file == str(folder / "rows.xlsx")
    return caught.value


def test_empty_lines_and_columns_of_a_sheet_are_left_out_I1_I6(tmp_path: Path) -> None:
    lines = [
        [],
        [" "],
        [None, " text ", None, "label", None],
        [None, "a", None, "x"],
        [],
        [None, " ", None, ""],
        [None, "b"],
    ]
    save(tmp_path, Sheet1=[*lines, [], []])
    assert read(tmp_path) == [{"text": "a", "label": "x"}, {"text": "b", "label": ""}]


def test_values_keep_their_kind_and_dates_are_texts_I5(tmp_path: Path) -> None:
    day, hour = datetime.datetime(2024, 1, 5), datetime.datetime(2024, 1, 5, 9, 30)
    header = ["id", "day", "hour", "time", "yes", "whole", "part", "text"]
    book = save(tmp_path, S=[header, [42, day, hour, datetime.time(9, 30), True, 3.0, 0.5, "007"]])
    book["S"]["A2"].number_format = "00000"
    book.save(tmp_path / "rows.xlsx")
    values = ["00042", "2024-01-05", "2024-01-05 09:30:00", "09:30:00", True, 3, 0.5, "007"]
    assert read(tmp_path) == [dict(zip(header, values, strict=True))]
    assert type(read(tmp_path)[0]["whole"]) is int, "an id is no 3.0"
    typed = read(tmp_path, types={"whole": "str", "id": "int", "yes": "str"})[0]
    assert (typed["whole"], typed["id"], typed["yes"]) == ("3", 42, "true")


def test_the_first_sheet_with_cells_is_read_or_the_one_that_is_named_I5(tmp_path: Path) -> None:
    book = save(tmp_path, Hidden=[["text"], ["h"]], Empty=[], Data=[["text"], ["a"]], Notes=[["text"], ["n"]])
    book["Hidden"].sheet_state = "hidden"
    book.save(tmp_path / "rows.xlsx")
    assert read(tmp_path) == [{"text": "a"}]
    assert read(tmp_path, sheet="Notes") == [{"text": "n"}] and read(tmp_path, sheet="Hidden") == [{"text": "h"}]
    assert refusal(tmp_path, sheet="Note").hint == "Did you mean 'Notes'?"
    assert read(tmp_path, sheet="Empty") == []


def test_a_merged_cell_holds_for_each_of_its_lines_I6(tmp_path: Path) -> None:
    book = save(tmp_path, S=[["text", "label"], ["a", "x"], ["b"], ["c", "y"]])
    book["S"].merge_cells("B2:B3")
    book.save(tmp_path / "rows.xlsx")
    assert [row["label"] for row in read(tmp_path)] == ["x", "x", "y"]


def test_a_merged_name_of_two_columns_names_the_first_I6(tmp_path: Path) -> None:
    book = save(tmp_path, S=[["text", None], ["a", "x"]])
    book["S"].merge_cells("A1:B1")
    book.save(tmp_path / "rows.xlsx")
    assert refusal(tmp_path).message == "column 2 has no name in the header, and contains 'x'"


def test_formulas_give_their_values_and_those_without_are_noted_I3(tmp_path: Path) -> None:
    save(tmp_path, S=[["text", "sum", "none", "bad"], ["a", "=1+1", '=""', "#N/A"], ["b", 3, 4, 5]])
    _replace(tmp_path / "rows.xlsx", "<f>1+1</f><v />", "<f>1+1</f><v>2</v>", "<f>1+1</f><v></v>")
    rows = read(tmp_path)
    assert rows[0] == {"text": "a", "sum": 2, "none": None, "bad": None} and set(rows[0].holes) == {"none", "bad"}
    assert rows[0].holes["none"].message == "the cell C2 is a formula without a value in the file"
    assert (rows[0].holes["bad"].message, rows[0].holes["bad"].line) == ("the cell D2 is #N/A", 2)


def test_a_formula_that_gives_an_empty_text_is_empty_I3(tmp_path: Path) -> None:
    save(tmp_path, S=[["text", "note"], ["a", '=""'], ["b", "c"]])
    wanted = '<c r="B2" t="str"><f>""</f><v></v>'
    _replace(tmp_path / "rows.xlsx", '<c r="B2"><f>""</f><v />', wanted, '<c r="B2"><f>""</f><v></v>')
    rows = read(tmp_path)
    assert rows[0] == {"text": "a", "note": ""} and not rows[0].holes


def _replace(path: Path, old: str, new: str, other: str) -> None:
    """Change the XML of the first sheet, which a spreadsheet program would have written so. other: also for `old`."""
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    place = "xl/worksheets/sheet1.xml"
    before = parts[place].decode()
    parts[place] = before.replace(old, new).replace(other, new).encode()
    assert parts[place].decode() != before
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)


@pytest.mark.parametrize(
    "content", [b"", b"text,label\na,x\n", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 99, b"PK\x03\x04"]
)
def test_what_is_no_such_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").write_bytes(content)
    error = refusal(tmp_path)
    assert "cannot read this as .xlsx" in error.message and ".csv" in (error.hint or "")


def test_a_cell_far_out_costs_nothing(tmp_path: Path) -> None:
    book = save(tmp_path, S=[["text"], ["a"]])
    book["S"]["XFD50000"] = " "
    book.save(tmp_path / "rows.xlsx")
    assert read(tmp_path) == [{"text": "a"}]

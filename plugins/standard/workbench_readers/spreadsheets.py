"""The reader of Excel files, which needs an extra."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any

from workbench.base.data_files import MAX_FILE, MAX_TEXT, too_large
from workbench.errors import SpecError, suggest
from workbench.task import ReadRow
from workbench_readers.common import Row, check_file, fault, import_extra, known_options
from workbench_readers.tables import holds, table_rows

#: Marks of formulas and merged cells in a file.
_SECOND_LOOK = re.compile(rb"<f[ >]|<mergeCell ")
#: Maximum number of cells of a sheet, and bytes of a book's sheets up to which cells are read a second time.
MAX_CELLS, _MAX_AMENDED = 20_000_000, 64 << 20
#: A number format that pads with zeros: 00042 is an id.
_FILLED = re.compile("0{2,}")


def read_xlsx(location: str, options: Mapping[str, Any]) -> Iterator[Row]:
    """Read an Excel sheet with a header (extra `[xlsx]`): the first one with a cell, or option `sheet: NAME`.

    Option `{types: {id: str}}` converts columns. Texts, numbers and truth values are kept, dates become texts. Formulas
    give the last computed values.
    """
    known_options(options, ("sheet", "types"), location)
    check_file(location)
    openpyxl = import_extra("openpyxl", "xlsx", location)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about parts of a file that are not read
            grid = _grid(openpyxl, location, options.get("sheet"))
    except SpecError:
        raise
    except Exception as error:  # a broken file breaks the library in many ways
        hint = "Save it as .xlsx without a password, or as .csv."
        raise fault(f"cannot read this as .xlsx: {type(error).__name__}: {error}", location, hint) from None
    for row in table_rows(enumerate(grid, 1), options.get("types"), location):
        holes = {name: cell.error(location) for name, cell in row.items() if isinstance(cell, _NoValue)}
        yield ReadRow({**row, **dict.fromkeys(holes)}, row.line, holes) if holes else row


@dataclass(frozen=True)
class _NoValue:
    """A cell that is not empty and has no value."""

    place: str
    line: int
    column: int
    problem: str

    def __str__(self) -> str:
        return self.problem

    def error(self, location: str) -> SpecError:
        hint = "Open the file in a spreadsheet program and save it, or write the value."
        return fault(f"the cell {self.place} is {self.problem}", location, hint, self.line, self.column)


def _grid(openpyxl: Any, location: str, wanted: Any) -> list[list[Any]]:
    """Return the cells of a sheet, line by line. No line is shorter than the header."""
    amended = _look_inside(location)
    book = openpyxl.load_workbook(location, read_only=True, data_only=True)
    try:
        sheet, grid = _sheet(book, location, wanted)
    finally:
        book.close()
    header, width = next(((i, len(line)) for i, line in enumerate(grid) if any(map(holds, line))), (0, 0))
    grid = [[*line, *[None] * (width - len(line))] for line in grid]
    if amended:
        _amend(openpyxl.load_workbook(location)[sheet], grid, width)
    lines = [["" if cell is None else cell for cell in line] for line in grid]
    if lines:  # a cell beyond is in a column without a name
        lines[header] += [""] * (max(map(len, lines)) - width)
    return lines


def _sheet(book: Any, location: str, wanted: Any) -> tuple[str, list[list[Any]]]:
    """Return the name of the requested sheet, and its cells."""
    known = [sheet.title for sheet in book.worksheets]
    if wanted is not None:
        if wanted not in known:
            raise fault(f"there is no sheet '{wanted}'", location, suggest(str(wanted), known))
        return wanted, _cells(book[wanted])
    for sheet in book.worksheets:
        if sheet.sheet_state == "visible" and (grid := _cells(sheet)):
            return sheet.title, grid
    return known[0], []


def _cells(sheet: Any) -> list[list[Any]]:
    """Return the cells of a sheet, without empty ones at the ends."""
    sheet.reset_dimensions()  # the size that the file states may be wrong, or very large
    grid: list[list[Any]] = []
    count = 0
    for line in sheet.rows:
        cells = [_value(cell) for cell in line]
        while cells and cells[-1] is None:
            cells.pop()
        grid.append(cells)
        count += 1 + len(cells)
        if count > MAX_CELLS:
            message = f"a sheet has more than {MAX_CELLS:,} cells"
            raise SpecError(message, hint="Save it as .csv, which is read a row at a time.")
    while grid and not grid[-1]:
        grid.pop()
    return grid


def _value(cell: Any) -> Any:
    """Return a cell's value; "" is an empty text, None an empty cell."""
    value = cell.value
    if value is None:
        return "" if cell.data_type == "str" else None
    if cell.data_type == "e":
        return _NoValue(cell.coordinate, cell.row, cell.column, str(value))
    if isinstance(value, datetime):
        return str(value.date() if value.time() == time() else value)
    if isinstance(value, float) and value.is_integer():  # Excel has only one kind of number
        value = int(value)
    if type(value) is int and _FILLED.fullmatch(cell.number_format):
        return f"{value:0{len(cell.number_format)}}"
    return value if isinstance(value, str | int | float) else str(value)


def _look_inside(location: str) -> bool:
    """Return True if a book has formulas or merged cells. Raise SpecError if it unpacks to more than the allowed size.

    `zipfile` unpacks no more of a part than the file states.
    """
    hint = "Save it as .csv, which is read a row at a time."
    with zipfile.ZipFile(location) as file:
        if sum(part.file_size for part in file.infolist()) > MAX_FILE:
            raise too_large("the book, unpacked,", MAX_FILE, location, None, hint)
        found = False
        for part in file.infolist():
            if not part.filename.endswith((".xml", ".rels")):
                continue
            sheet, rest, text = part.filename.startswith("xl/worksheets/"), b"", 0
            with file.open(part) as stream:
                for block in iter(lambda: stream.read(1 << 20), b""):
                    found = found or (sheet and _SECOND_LOOK.search(rest + block) is not None)
                    rest = block[-16:]
                    text = text + len(block) if b"<" not in block else len(block) - block.rfind(b"<")
                    if text > MAX_TEXT:
                        raise too_large(f"a text in {part.filename}", MAX_TEXT, location)
        size = sum(part.file_size for part in file.infolist() if part.filename.startswith("xl/worksheets/"))
    if found and size > _MAX_AMENDED:
        raise too_large("a book with formulas or merged cells, unpacked,", _MAX_AMENDED, location, None, hint)
    return found


def _amend(sheet: Any, grid: list[list[Any]], width: int) -> None:
    """Mark formulas without a stored value, and copy the value of a merged cell into each of its lines."""
    for number, line in enumerate(grid, 1):
        for column in range(1, width + 1):
            if line[column - 1] is None and (cell := sheet.cell(number, column)).data_type == "f":
                line[column - 1] = _NoValue(cell.coordinate, number, column, "a formula without a value in the file")
    for merged in sheet.merged_cells.ranges:
        lines, column = grid[merged.min_row - 1 : merged.max_row], merged.min_col - 1
        for line in lines[1:]:
            if column < min(width, len(lines[0])):
                line[column] = lines[0][column]

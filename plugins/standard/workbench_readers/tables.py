"""Tables: a header and the rows below it. Cells as a spreadsheet writes them, and the readers of CSV and TSV."""

from __future__ import annotations

import csv
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from workbench.base.data_files import MAX_ROW, MAX_TEXT, too_large
from workbench.errors import SpecError
from workbench.task import ReadRow
from workbench_readers.common import Row, fault, known_options
from workbench_readers.json_files import decode_strictly
from workbench_readers.texts import open_text, text_lines

_OPTIONS = ("types", "delimiter", "encoding")
#: Excel's first line that states the delimiter.
_SEPARATOR = re.compile(r'"?sep=([^"\r\n])"?[^\S\r\n]*(?:\r\n|\r|\n|$)', re.IGNORECASE)


def _finite(text: str) -> float:
    return float(text) if float(text) - float(text) == 0.0 else float("no finite number")


_TYPES: dict[str, Callable[[str], Any]] = {"int": int, "float": _finite, "str": str, "json": decode_strictly}


def read_csv(location: str, options: Mapping[str, Any]) -> Iterator[Row]:
    """Read comma-separated values with a header. Cells stay text.

    Options: `{types: {price: float}}` converts columns; `delimiter`; `encoding`.
    """
    return _delimited(location, options, ",")


def read_tsv(location: str, options: Mapping[str, Any]) -> Iterator[Row]:
    """Read tab-separated values with a header, else like csv."""
    return _delimited(location, options, "\t")


def _delimited(location: str, options: Mapping[str, Any], default: str) -> Iterator[Row]:
    known_options(options, _OPTIONS, location)
    with open_text(location, options) as file:
        # Lines end as csv defines it, not at U+2028 or a form feed, which may be in a cell.
        lines = text_lines(file, location)
        first = next(lines, (1, ""))[1]
        if stated := _SEPARATOR.match(first):
            first, default = "\n", stated[1]  # an empty line, so that lines keep their numbers
        delimiter = options.get("delimiter", default)
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
            hint = "Write e.g. data: {options: {delimiter: ';'}}."
            raise fault(f"the delimiter must be one character, not {delimiter!r}", location, hint)
        guessed = None if stated or "delimiter" in options else delimiter
        rows = _numbered(chain([first], (line for _, line in lines)), delimiter, location)
        yield from table_rows(rows, options.get("types"), location, guessed)


def _numbered(lines: Iterable[str], delimiter: str, location: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row, with the number of the line on which it begins."""
    size = 0

    def measured() -> Iterator[str]:
        nonlocal size
        for line in lines:
            size += len(line)
            if size > MAX_ROW:
                raise _endless(begin + 1, MAX_ROW, location)
            yield line

    csv.field_size_limit(MAX_TEXT)
    reader, begin = csv.reader(measured(), delimiter=delimiter, strict=True), 0
    try:
        for cells in reader:
            yield begin + 1, cells
            size, begin = 0, reader.line_num
    except csv.Error as error:
        if "field limit" in str(error):
            raise _endless(begin + 1, MAX_TEXT, location) from None
        raise fault(f"not a table: {error}", location, "Check the quotes around here.", reader.line_num) from None


def _endless(line: int, most: int, location: str) -> SpecError:
    hint = "Is a quote that opens in this line never closed? Else shorten the row, or leave it out."
    return too_large("a row that begins here", most, location, line, hint)


def table_rows(
    lines: Iterable[tuple[int, Sequence[Any]]], types: Any, location: str, guessed: str | None = None
) -> Iterator[ReadRow]:
    """Yield the rows of a table. The first line with a cell that is not blank is the header.

    Skips blank lines, and blank columns without a name, which spreadsheets write. Raises SpecError.

    Args:
        lines: the number of each line, and its cells; a missing cell is "".
        types: the option: target type by column.
        guessed: the delimiter, if the user did not name one.
    """
    header = None
    for number, cells in lines:
        if not any(map(holds, cells)):
            continue
        if header is None:
            if guessed is not None:
                _check_delimiter([str(cell) for cell in cells], guessed, location, number)
            header = _Header(cells, types, location, number)
            continue
        row = header.row(cells, number)
        if "" in row and not holds(row[""]):
            del row[""]
        yield ReadRow(row, number)


def holds(cell: Any) -> bool:
    """Return True if a cell is not blank."""
    return bool(_visible(cell)) if isinstance(cell, str) else cell is not None


def _visible(text: str) -> str:
    """Return a text without surrounding spaces and zero-width characters."""
    return text.strip("\ufeff\u200b\u2060" + string.whitespace + "\u00a0\u3000")


class _Header:
    """The names of columns. The first may have none, e.g. a library's index; others without a name must be blank."""

    def __init__(self, cells: Sequence[Any], types: Any, location: str, line: int):
        self.location, self.cells = location, len(cells)
        self.names = [_visible(str(cell)) for cell in cells]
        while not self.names[-1]:
            self.names.pop()
        self.unnamed = [index for index, name in enumerate(self.names) if not name and index]
        if twice := _twice(name for name in self.names if name):
            raise fault(f"the column '{twice}' occurs twice in the header", location, "Rename one of them.", line)
        self.types = _column_types(types, self.names, location)

    def row(self, cells: Sequence[Any], line: int) -> Row:
        """Return the row of a line. Raise SpecError for a cell without a column, or of the wrong type."""
        names, width = self.names, len(self.names)
        beyond = [i for i in range(width, len(cells)) if holds(cells[i])] if len(cells) > width else []
        if len(cells) < width or any(i >= self.cells for i in beyond):
            message = f"{len(cells)} cells, the header has {width}"
            alone = "If the first line is no header, remove it." if width == 1 else ""
            hint = alone or "Put cells that contain the delimiter into quotes."
            raise fault(message, self.location, hint, line)
        if wrong := beyond or [i for i in self.unnamed if holds(cells[i])]:
            message = f"column {wrong[0] + 1} has no name in the header, and contains '{cells[wrong[0]]!s:.40}'"
            raise fault(message, self.location, "Name it, or empty it. Lines above the header must go.", line)
        row: Row = dict(zip(names, cells, strict=False))
        if self.unnamed and names[0]:
            del row[""]
        elif self.unnamed:
            row[""] = cells[0]
        for column, kind in self.types.items():
            row[column] = self._typed(row[column], kind, column, line)
        return row

    def _typed(self, cell: Any, kind: str, column: str, line: int) -> Any:
        text = cell if isinstance(cell, str) else str(cell).lower() if isinstance(cell, bool) else str(cell)
        try:
            return _TYPES[kind](text)
        except (ValueError, RecursionError):
            hint = f"Correct the cell, or take '{column}' out of data: {{options: {{types: ...}}}}."
            message = f"'{text[:60]}' in the column '{column}' is not of type {kind}"
            raise fault(message, self.location, hint, line) from None


def _twice(names: Iterable[str]) -> str | None:
    """Return the first duplicate name."""
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _check_delimiter(header: list[str], delimiter: str, location: str, line: int) -> None:
    """Raise SpecError for a header of one column that contains another usual delimiter."""
    other = next((mark for mark in ";\t|," if len(header) == 1 and mark != delimiter and mark in header[0]), None)
    if other is not None:
        shown = {"\t": '"\\t"'}.get(other, f"'{other}'")
        hint = f"Is the delimiter {shown}? Write data: {{options: {{delimiter: {shown}}}}}."
        raise fault(f"the header has one column, {header[0][:80]!r}", location, hint, line)


def _column_types(wanted: Any, header: list[str], location: str) -> dict[str, str]:
    types = dict(wanted or {})
    for column, name in types.items():
        if name not in _TYPES:
            hint = f"Known: {', '.join(_TYPES)}."
            raise fault(f"unknown type '{name}' for the column '{column}'", location, hint)
        if column not in header:
            message = f"types names the column '{column}', which the header does not have"
            raise fault(message, location, f"Columns: {', '.join(header)}.", 1)
    return types

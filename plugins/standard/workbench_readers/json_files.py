"""Readers of JSON. Every error names the file and the line, and the remedy."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TextIO

from workbench.base.data_files import MAX_ROW, too_large
from workbench.errors import SpecError
from workbench.task import ReadRow
from workbench_readers.common import Row, fault, known_options
from workbench_readers.texts import open_text, read_text, text_lines
from workbench_readers.values import as_json


class _Twice(ValueError):
    """A duplicate key in an object: readers disagree on which of its values counts."""


class _NotFinite(float):
    """NaN, infinity or a number that is too large: not JSON, or without a value here. number: its position among the
    numbers of its text."""

    number = 0


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        raise _Twice(next(name for name, _ in pairs if name in seen or seen.add(name)))
    return found


class _Decoder:
    """Decodes JSON texts. odd: the positions of numbers in the last text that are not finite."""

    def __init__(self) -> None:
        self.odd: list[_NotFinite] = []
        self._decoder = json.JSONDecoder(
            parse_float=self._number, parse_constant=self._number, object_pairs_hook=_object
        )

    def decode(self, text: str) -> Any:
        """Return the value of a text. Raise ValueError or RecursionError."""
        self.odd.clear()
        return self._decoder.decode(text)

    def decode_at(self, text: str, at: int) -> tuple[Any, int]:
        """Return the value that begins at a place in a text, and where it ends. Raise ValueError or RecursionError."""
        self.odd.clear()
        return self._decoder.raw_decode(text, at)

    def _number(self, text: str) -> float:
        value = float(text)
        if math.isfinite(value):
            return value
        odd = _NotFinite(value)
        odd.number = len(self.odd)
        self.odd.append(odd)
        return odd


def decode_strictly(text: str) -> Any:
    """Return the value of a JSON text. Raise ValueError, also for numbers that are not finite, or RecursionError."""
    decoder = _Decoder()
    value = decoder.decode(text)
    if decoder.odd:
        raise ValueError("a number is not finite")
    return value


# Skips texts, so that the word NaN inside one is not found.
_FILLED = re.compile(r"[^ \t\n\r]")
_NUMBERS = re.compile(r'"(?:[^"\\]|\\.)*"|(-?(?:NaN|Infinity)|-?\d[\d.]*+(?:[eE][+-]?\d+)?)')
#: The start of a list of objects, and a line with one object that is followed by another line with an object.
_LIST, _LINES = re.compile(r"\s*\[\s*(?:\{|\]\s*$)"), re.compile(r"\s*(\{.*\})[^\S\n]*\n\s*\{")

_AS_LINES = "Write JSON Lines, one object a line, which are read one at a time."


def read_jsonl(location: str, options: Mapping[str, Any]) -> Iterator[Row]:
    """Read JSON Lines: an object per line; empty lines are skipped. Also a list of objects. Option `encoding`."""
    known_options(options, ("encoding",), location)
    begin, second = _first_lines(location, options)
    if _LIST.match(begin + second) and not (second.strip() and is_json(begin)):
        return _rows_of_list(location, options)
    return _rows_of_lines(location, options)


def read_json(location: str, options: Mapping[str, Any]) -> Iterator[Row]:
    """Read a list of objects. Also one object per line. Options: `{path: data.rows}`, its place in the file;
    `encoding`."""
    known_options(options, ("path", "encoding"), location)
    path = str(options.get("path") or "")
    begin, second = _first_lines(location, options)
    if not path and (found := _LINES.match(begin + second)) and is_json(found[1]):
        return _rows_of_lines(location, options)
    if not path and begin.lstrip().startswith("["):
        return _rows_of_list(location, options)
    return _rows_at_path(location, options, path.split(".") if path else ())


def _first_lines(location: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first line that is not blank, and the next one; of a long line its start and what follows."""
    with open_text(location, options, newline="\n") as file:
        filled = (line for line in iter(lambda: file.readline(MAX_ROW), "") if line.strip())
        return next(filled, ""), next(filled, "")


def parse_json_file(location: str, options: Mapping[str, Any]) -> Any:
    """Return the value of a whole file. Raise SpecError, also for a number that is not finite."""
    text, decoder = read_text(location, options), _Decoder()
    value = _parse(text, location, 1, decoder)
    if decoder.odd:
        raise fault("a number is not finite", location, "Write null.")
    return value


def is_json(text: str) -> bool:
    """Return True if a text is JSON."""
    try:
        _Decoder().decode(text)
        return True
    except (ValueError, RecursionError):
        return False


def _rows_of_lines(location: str, options: Mapping[str, Any]) -> Iterator[Row]:
    decoder = _Decoder()
    with open_text(location, options, newline="\n") as file:
        for number, line in text_lines(file, location):
            if not line.strip():
                continue
            row = _parse(line, location, number, decoder)
            if not isinstance(row, dict):
                hint = 'Write e.g. {"text": "...", "label": "..."}.'
                raise fault(f"a row must be an object, this is {_kind(row)}", location, hint, number)
            yield _without_odd(row, line, location, number, number) if decoder.odd else ReadRow(row, number)


def _rows_of_list(location: str, options: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of a file that is a single list, one at a time."""
    decoder = _Decoder()
    with open_text(location, options) as file:
        stretch = _Stretch(file, decoder, location)
        for number, row in enumerate(stretch.items(), 1):
            if not isinstance(row, dict):
                message = f"row {number} must be an object, it is {_kind(row)}"
                raise fault(message, location, "Write [{...}, {...}].", stretch.line)
            place = max(number, stretch.line)  # of several rows on one line, the number
            if decoder.odd:
                yield _without_odd(row, stretch.last, location, stretch.line, place)
            else:
                yield ReadRow(row, place)


class _Stretch:
    """A part of a file that is one JSON list: read, but not yet consumed.

    line: the line on which the last item begins. last: the text of the last item.
    """

    def __init__(self, file: TextIO, decoder: _Decoder, location: str):
        self._file, self._decoder, self._location = file, decoder, location
        self._text, self._at, self._ended = "", 0, False
        self._mark, self._mark_line, self._mark_column = 0, 1, 1  # a place whose line and column are known
        self.line, self.last = 1, ""

    def items(self) -> Iterator[Any]:
        """Yield the items of the list. Raise SpecError."""
        self._expect("[", "Expecting value")
        if self._next() != "]":
            yield self._item()
            while self._next() == ",":
                self._at += 1
                yield self._item()
        self._expect("]", "Expecting ',' delimiter")
        if self._next():
            raise self._wrong("Extra data", self._at)

    def _next(self) -> str:
        """Return the next character that is not blank; "" at the end."""
        while True:
            found = _FILLED.search(self._text, self._at)
            if found:
                self._at = found.start()
                return self._text[self._at]
            self._at = len(self._text)
            if not self._read():
                return ""

    def _expect(self, mark: str, otherwise: str) -> None:
        if self._next() != mark:
            raise self._wrong(otherwise, self._at)
        self._at += 1

    def _item(self) -> Any:
        self._next()
        failed = -1
        while True:
            try:
                value, end = self._decoder.decode_at(self._text, self._at)
            except json.JSONDecodeError as error:
                place = error.pos - self._at
                certain = place == failed and not error.msg.startswith("Unterminated")
                failed = place
                if certain or not self._read():
                    raise self._wrong(error.msg, self._at + place) from None
            except (ValueError, RecursionError) as error:
                raise _unparsed(error, self._location, self._line_of(self._at)) from None
            else:
                self._set_mark(self._at)
                self.line, self.last = self._mark_line, self._text[self._at : end]
                self._at = end
                return value

    def _read(self) -> bool:
        """Read on, doubling the amount. Raise SpecError if an item is too long."""
        if self._ended:
            return False
        left = len(self._text) - self._at
        if left > MAX_ROW:
            raise too_large("a row that begins here", MAX_ROW, self._location, self._line_of(self._at))
        more = self._file.read(max(1 << 20, left))
        self._ended = not more
        self._set_mark(self._at)
        self._text, self._at, self._mark = self._text[self._at :] + more, 0, 0
        return not self._ended

    def _set_mark(self, at: int) -> None:
        self._mark_line, self._mark_column = self._place_of(at)
        self._mark = at

    def _place_of(self, at: int) -> tuple[int, int]:
        newlines = self._text.count("\n", self._mark, at)
        if not newlines:
            return self._mark_line, self._mark_column + at - self._mark
        return self._mark_line + newlines, at - self._text.rfind("\n", 0, at)

    def _line_of(self, at: int) -> int:
        return self._place_of(at)[0]

    def _wrong(self, message: str, at: int) -> SpecError:
        line, column = self._place_of(at)
        return fault(f"not JSON: {message}", self._location, _json_hint(self._text, at), line, column)


def _rows_at_path(location: str, options: Mapping[str, Any], path: Sequence[str]) -> Iterator[Row]:
    decoder = _Decoder()
    text = read_text(location, options, _AS_LINES)
    value = _parse(text, location, 1, decoder)
    for part in path:
        if not isinstance(value, dict) or part not in value:
            message = f"there is no '{part}' on the path '{'.'.join(path)}'"
            raise fault(message, location, "Correct data: {options: {path: ...}}.", 1)
        value = value[part]
    if not isinstance(value, list):
        place = f"value of {path[-1]}" if path else "file"
        message = f"the {place} must be a list of objects, this is {_kind(value)}"
        raise fault(message, location, _where_rows_are(value, path), 1)
    for number, row in enumerate(value, 1):
        if not isinstance(row, dict):
            raise fault(f"row {number} must be an object, it is {_kind(row)}", location, "Write [{...}, {...}].", 1)
    return (_without_odd(row, text, location, 1, None) if decoder.odd else row for row in value)


def _where_rows_are(value: Any, path: Sequence[str]) -> str:
    """Return a hint at the lists of objects in an object, or at its columns."""
    inner = [*value.items()] if isinstance(value, dict) else []
    if lists := [name for name, rows in inner if isinstance(rows, list) and rows and isinstance(rows[0], dict)]:
        return f"Write data: {{options: {{path: {'.'.join([*path, lists[0]])}}}}}."
    if inner and all(isinstance(column, list | dict) for _, column in inner):
        return "These are columns or named rows. Write a list of rows: in pandas, to_json(..., orient='records')."
    return "Write [{...}, {...}], or say where the list is with data: {options: {path: ...}}."


def _without_odd(row: Row, text: str, location: str, line: int, place: int | None) -> ReadRow:
    """Return a row with null for each number that is not finite, and a note of its field.

    text: contains the row, from the given line of the file. place: the line of the row, or its number.
    """
    holes = dict[str, SpecError]()

    def missing(field: str, value: Any, _: str) -> None:
        at, number = next(islice(_odd_numbers(text), value.number, None))
        told = f"{number}, which is not JSON" if number[-1] in "Ny" else "too large a number"
        its_line, column = line + text.count("\n", 0, at), at - text.rfind("\n", 0, at)
        hint = "Write null, or leave the row out."
        holes.setdefault(field, fault(f"'{field}' is {told}", location, hint, its_line, column))

    try:
        found = as_json(row, missing)
    except RecursionError as error:
        raise _unparsed(error, location, line) from None
    return ReadRow(found, place, holes)


def _odd_numbers(text: str) -> Iterator[tuple[int, str]]:
    """Yield position and text of each number in a JSON text that is not finite."""
    for found in _NUMBERS.finditer(text):
        number = found[1]
        if number and not number.lstrip("-").isdigit() and not math.isfinite(float(number)):
            yield found.start(1), number


def _parse(text: str, location: str, line: int, decoder: _Decoder) -> Any:
    """Parse a JSON text that begins in the given line of the file."""
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        hint = _json_hint(error.doc, error.pos)
        raise fault(f"not JSON: {error.msg}", location, hint, line + error.lineno - 1, error.colno) from None
    except (ValueError, RecursionError) as error:
        raise _unparsed(error, location, line) from None


def _json_hint(text: str, at: int) -> str:
    if re.match(r"\s*(?:#|//|/\*)", text[max(0, at - 2) : at + 100]):
        return "JSON has no comments: remove this one."
    if text[at : at + 100].strip() == ",":
        return "A line holds one object, and no comma behind it: remove it."
    return 'Each row is one object, e.g. {"text": "...", "label": "..."}.'


def _unparsed(error: Exception, location: str, line: int) -> SpecError:
    """Return the error for JSON that is well-formed and still cannot be read."""
    if isinstance(error, RecursionError):
        return fault("the JSON is nested too deeply", location, "Write flatter rows.", line)
    if isinstance(error, _Twice):
        return fault(f"the key '{str(error)[:60]}' occurs twice in an object", location, "Remove one of them.", line)
    return fault("a number has too many digits", location, "Write it as a text, in quotes.", line)  # Python's limit


def _kind(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")

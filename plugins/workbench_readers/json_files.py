"""Readers of JSON. Every error names the file and the line, and says what to write instead."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from workbench.spec import PATH, declares
from workbench.task import Rows
from workbench_readers.common import Row, fault, known_options, some_rows
from workbench_readers.texts import read_text
from workbench_readers.values import as_json


class _Twice(ValueError):
    """A key that stands twice in an object: readers disagree on which of its values counts."""


class _NotFinite(float):
    """NaN, infinity or a number that is too large: what is not JSON, or has no value here. number: among those of its
    text."""

    number = 0


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for index, name in enumerate(names) if name in names[:index]))
    return found


class _Decoder:
    """Reads JSON texts. odd: the numbers of the last text that are not finite."""

    def __init__(self) -> None:
        self.odd: list[_NotFinite] = []
        self._decoder = json.JSONDecoder(
            parse_float=self._number, parse_constant=self._number, object_pairs_hook=_object
        )

    def decode(self, text: str) -> Any:
        """The value of a text. Raises ValueError and RecursionError."""
        self.odd.clear()
        return self._decoder.decode(text)

    def _number(self, text: str) -> float:
        value = float(text)
        if math.isfinite(value):
            return value
        odd = _NotFinite(value)
        odd.number = len(self.odd)
        self.odd.append(odd)
        return odd


def decode_strictly(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for a number that is not finite, and RecursionError."""
    decoder = _Decoder()
    value = decoder.decode(text)
    if decoder.odd:
        raise ValueError("a number is not finite")
    return value


# Texts are skipped, so that the word NaN in one of them is not taken for the culprit.
_NUMBERS = re.compile(r'"(?:[^"\\]|\\.)*"|(-?(?:NaN|Infinity)|-?\d[\d.]*+(?:[eE][+-]?\d+)?)')
#: How a list of objects begins, and how an object does that ends on its line and has others below it.
_LIST, _LINES = re.compile(r"\s*\[\s*(?:\{|\]\s*$)"), re.compile(r"\s*(\{.*\})[^\S\n]*\n\s*\{")


@declares(location=PATH)
def read_jsonl(location: str, options: Mapping[str, Any]) -> list[Row]:
    """JSON Lines: an object per line; empty lines are skipped. Also a list of objects. Option `encoding`."""
    known_options(options, ("encoding",), location)
    text = read_text(location, options)
    if _LIST.match(text) and _is_json(text):
        return _rows_of_list(text, location, ())
    return _rows_of_lines(text, location)


@declares(location=PATH)
def read_json(location: str, options: Mapping[str, Any]) -> list[Row]:
    """A list of objects; options `{path: data.rows}` says where it lies inside the file; `encoding`. Also one object a
    line."""
    known_options(options, ("path", "encoding"), location)
    text = read_text(location, options)
    found = None if options.get("path") else _LINES.match(text)
    if found and _is_json(found[1]):
        return _rows_of_lines(text, location)
    path = str(options.get("path") or "")
    return _rows_of_list(text, location, path.split(".") if path else ())


def parse_json_file(location: str, options: Mapping[str, Any]) -> Any:
    """The value of a whole file. Raises SpecError, also for a number that is not finite."""
    text, decoder = read_text(location, options), _Decoder()
    value = _parse(text, location, 1, decoder)
    if decoder.odd:
        raise fault("a number is not finite", location, "Write null.")
    return value


def _is_json(text: str) -> bool:
    try:
        _Decoder().decode(text)
        return True
    except (ValueError, RecursionError):
        return False


def _rows_of_lines(text: str, location: str) -> Rows:
    rows, decoder = Rows(), _Decoder()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        row = _parse(line, location, number, decoder)
        if not isinstance(row, dict):
            hint = 'Write e.g. {"text": "...", "label": "..."}.'
            raise fault(f"a row must be an object, this is {_kind(row)}", location, hint, number)
        rows.append(_without_odd(row, rows, line, location, number) if decoder.odd else row)
    return some_rows(rows, location)


def _rows_of_list(text: str, location: str, path: Sequence[str]) -> Rows:
    decoder = _Decoder()
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
    rows = Rows()
    for number, row in enumerate(value, 1):
        if not isinstance(row, dict):
            raise fault(f"row {number} must be an object, it is {_kind(row)}", location, "Write [{...}, {...}].", 1)
        rows.append(_without_odd(row, rows, text, location, 1) if decoder.odd else row)
    return some_rows(rows, location)


def _where_rows_are(value: Any, path: Sequence[str]) -> str:
    """A hint at the lists of objects in an object, or at its columns."""
    inner = [*value.items()] if isinstance(value, dict) else []
    if lists := [name for name, rows in inner if isinstance(rows, list) and rows and isinstance(rows[0], dict)]:
        return f"Write data: {{options: {{path: {'.'.join([*path, lists[0]])}}}}}."
    if inner and all(isinstance(column, list | dict) for _, column in inner):
        return "These are columns or named rows. Write a list of rows: in pandas, to_json(..., orient='records')."
    return "Write [{...}, {...}], or say where the list is with data: {options: {path: ...}}."


def _without_odd(row: Row, rows: Rows, text: str, location: str, line: int) -> Row:
    """A row with null for each number that is not finite, and a note of its field. text: that the row stands in, from
    the given line of the file."""

    def missing(field: str, value: Any, _: str) -> None:
        if field not in rows.holes:
            at, number = next(islice(_odd_numbers(text), value.number, None))
            told = f"{number}, which is not JSON" if number[-1] in "Ny" else "too large a number"
            its_line, column = line + text.count("\n", 0, at), at - text.rfind("\n", 0, at)
            hint = "Write null, or leave the row out."
            rows.add_hole(field, fault(f"'{field}' is {told}", location, hint, its_line, column))

    return as_json(row, missing)


def _odd_numbers(text: str) -> Iterator[tuple[int, str]]:
    """Where the numbers of a JSON text stand that are not finite, and they."""
    for found in _NUMBERS.finditer(text):
        number = found[1]
        if number and not number.lstrip("-").isdigit() and not math.isfinite(float(number)):
            yield found.start(1), number


def _parse(text: str, location: str, line: int, decoder: _Decoder) -> Any:
    """A JSON text that begins in the given line of the file."""
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        message, line, column = f"not JSON: {error.msg}", line + error.lineno - 1, error.colno
        hint = 'Each row is one object, e.g. {"text": "...", "label": "..."}.'
        if re.match(r"\s*(?:#|//|/\*)", error.doc[max(0, error.pos - 2) :]):
            hint = "JSON has no comments: remove this one."
        elif error.doc[error.pos :].strip() == ",":
            hint = "A line holds one object, and no comma behind it: remove it."
    except RecursionError:
        message, column, hint = "the JSON is nested too deeply", 1, "Write flatter rows."
    except _Twice as error:
        message, column = f"the key '{str(error)[:60]}' occurs twice in an object", 1
        hint = "Remove one of them."
    except ValueError:  # Python's limit on digits
        message, column, hint = "a number has too many digits", 1, "Write it as a text, in quotes."
    raise fault(message, location, hint, line, column)


def _kind(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")

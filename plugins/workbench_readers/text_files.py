"""Readers for text files. Every error names the file and the line, and says what to write instead."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from workbench.errors import SpecError
from workbench_readers.common import Row, known_options, read_bytes, some_rows


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("the number is not finite or too large")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class _Twice(ValueError):
    """A key that stands twice in an object: readers disagree on which of its values counts."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for index, name in enumerate(names) if name in names[:index]))
    return found


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_object)
_TYPES = {"int": int, "float": _finite, "str": str, "json": _DECODER.decode}
# Texts are skipped, so that the word NaN in one of them is not taken for the culprit.
_NOT_FINITE = re.compile(r'"(?:[^"\\]|\\.)*"|(-?\b(?:NaN|Infinity)\b|(?<![\d.])-?\d[\d.]*+[eE]\+?\d{3,})')


def read_jsonl(location: str, options: Mapping[str, Any]) -> list[Row]:
    """One JSON object a line; empty lines are skipped. Option `encoding`."""
    known_options(options, ("encoding",), location)
    rows = []
    for number, line in enumerate(_text(location, options).split("\n"), 1):
        if not line.strip():
            continue
        row = _parse(line, location, number)
        if not isinstance(row, dict):
            raise SpecError(
                f"a row must be an object, this is {_kind(row)}",
                file=location,
                line=number,
                column=1,
                hint='Write e.g. {"text": "...", "label": "..."}.',
            )
        rows.append(row)
    return some_rows(rows, location)


def read_json(location: str, options: Mapping[str, Any]) -> list[Row]:
    """A list of objects; options `{path: data.rows}` says where it lies inside the file; `encoding`."""
    known_options(options, ("path", "encoding"), location)
    value = _parse(_text(location, options), location, 1)
    for part in str(options.get("path", "")).split(".") if options.get("path") else ():
        if not isinstance(value, dict) or part not in value:
            raise SpecError(
                f"there is no '{part}' on the path '{options['path']}'",
                file=location,
                line=1,
                column=1,
                hint="Correct data: {options: {path: ...}}.",
            )
        value = value[part]
    if not isinstance(value, list):
        raise SpecError(
            f"the file must be a list of objects, this is {_kind(value)}",
            file=location,
            line=1,
            column=1,
            hint="Write [{...}, {...}], or say where the list is with data: {options: {path: ...}}.",
        )
    for number, row in enumerate(value, 1):
        if not isinstance(row, dict):
            raise SpecError(
                f"row {number} must be an object, it is {_kind(row)}",
                file=location,
                line=1,
                column=1,
                hint="Write [{...}, {...}].",
            )
    return some_rows(value, location)


def read_csv(location: str, options: Mapping[str, Any]) -> list[Row]:
    """Comma-separated with a header. Cells stay text; options `{types: {price: float}}` converts columns; `delimiter`,
    `encoding`."""
    return _delimited(location, options, ",")


def read_tsv(location: str, options: Mapping[str, Any]) -> list[Row]:
    """Tab-separated with a header, else like csv."""
    return _delimited(location, options, "\t")


def _delimited(location: str, options: Mapping[str, Any], default: str) -> list[Row]:
    known_options(options, ("types", "delimiter", "encoding"), location)
    delimiter = options.get("delimiter", default)
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise SpecError(
            f"the delimiter must be one character, not {delimiter!r}",
            file=location,
            hint="Write e.g. data: {options: {delimiter: ';'}}.",
        )
    csv.field_size_limit(100_000_000)
    # Lines end as csv says, not at U+2028 or a form feed, which may stand in a cell.
    reader = csv.reader(io.StringIO(_text(location, options), newline=""), delimiter=delimiter, strict=True)
    rows: list[Row] = []
    header: list[str] = []
    types: dict[str, str] = {}
    try:
        for cells in reader:
            if not cells:
                continue
            if not header:
                header = _header(cells, location, reader.line_num)
                if "delimiter" not in options:
                    _check_delimiter(header, delimiter, location, reader.line_num)
                types = _column_types(options, header, location)
                continue
            if len(cells) != len(header):
                raise SpecError(
                    f"{len(cells)} cells, the header has {len(header)}",
                    file=location,
                    line=reader.line_num,
                    column=1,
                    hint="Put cells that contain the delimiter into quotes.",
                )
            row: Row = dict(zip(header, cells, strict=True))
            for column, kind in types.items():
                row[column] = _typed(row[column], kind, column, location, reader.line_num)
            rows.append(row)
    except csv.Error as error:
        raise SpecError(
            f"not a table: {error}", file=location, line=reader.line_num, column=1, hint="Check the quotes around here."
        ) from None
    return some_rows(rows, location)


def _header(cells: list[str], location: str, line: int) -> list[str]:
    if len(set(cells)) < len(cells):
        seen = set[str]()
        for name in cells:
            if name not in seen:
                seen.add(name)
                continue
            raise SpecError(
                f"the column '{name}' stands twice in the header",
                file=location,
                line=line,
                column=1,
                hint="Rename one of them.",
            )
    return cells


def _check_delimiter(header: list[str], delimiter: str, location: str, line: int) -> None:
    """Refuse a header of one column that holds another usual delimiter. Raises SpecError."""
    other = next((mark for mark in ";\t|," if len(header) == 1 and mark != delimiter and mark in header[0]), None)
    if other is not None:
        shown = {"\t": '"\\t"'}.get(other, f"'{other}'")
        raise SpecError(
            f"the header has one column, {header[0][:80]!r}",
            file=location,
            line=line,
            column=1,
            hint=f"Is the delimiter {shown}? Write data: {{options: {{delimiter: {shown}}}}}.",
        )


def _column_types(options: Mapping[str, Any], header: list[str], location: str) -> dict[str, str]:
    types = dict(options.get("types") or {})
    for column, name in types.items():
        if name not in _TYPES:
            raise SpecError(
                f"unknown type '{name}' for the column '{column}'", file=location, hint=f"Known: {', '.join(_TYPES)}."
            )
        if column not in header:
            raise SpecError(
                f"types names the column '{column}', which the header does not have",
                file=location,
                line=1,
                column=1,
                hint=f"Columns: {', '.join(header)}.",
            )
    return types


def _typed(cell: str, kind: str, column: str, location: str, line: int) -> Any:
    try:
        return _TYPES[kind](cell)
    except (ValueError, RecursionError):
        raise SpecError(
            f"'{cell[:60]}' in the column '{column}' is no {kind}",
            file=location,
            line=line,
            column=1,
            hint=f"Correct the cell, or take '{column}' out of data: {{options: {{types: ...}}}}.",
        ) from None


def _text(location: str, options: Mapping[str, Any]) -> str:
    """The text of a file in the option `encoding`, or in UTF-8 with or without a mark at its beginning."""
    data, encoding = read_bytes(location), str(options.get("encoding", "utf-8-sig"))
    try:
        return data.decode("utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start]
        start = before.rfind(b"\n") + 1
        other = "encoding" in options
        raise SpecError(
            f"the file is not {encoding}" if other else "the file is not UTF-8",
            file=location,
            line=before.count(b"\n") + 1,
            column=len(before[start:].decode("utf-8-sig", "replace")) + 1,
            hint="Name the encoding that it was saved in."
            if other
            else "Save it as UTF-8, or name its encoding: data: {options: {encoding: latin-1}}, or cp1252 for Windows.",
        ) from None
    except (LookupError, ValueError):
        hint = "Write e.g. data: {options: {encoding: latin-1}}."
        raise SpecError(f"there is no encoding '{encoding}'", file=location, hint=hint) from None


def _parse(text: str, location: str, line: int) -> Any:
    """A JSON text that begins in the given line of the file."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"not JSON: {error.msg}",
            file=location,
            line=line + error.lineno - 1,
            column=error.colno,
            hint='Each row is one object, e.g. {"text": "...", "label": "..."}.',
        ) from None
    except RecursionError:
        raise SpecError(
            "the JSON is nested too deeply", file=location, line=line, column=1, hint="Write flatter rows."
        ) from None
    except _Twice as error:
        name = str(error)[:60]
        raise SpecError(
            f"the key '{name}' stands twice in an object",
            file=location,
            line=line,
            column=1,
            hint="Remove one of them.",
        ) from None
    except ValueError as error:
        if "finite" not in str(error) and "is not JSON" not in str(error):  # Python's limit on digits
            raise SpecError(
                "a number has too many digits",
                file=location,
                line=line,
                column=1,
                hint="Write it as a text, in quotes.",
            ) from None
        at = next((found.start(1) for found in _NOT_FINITE.finditer(text) if found[1]), 0)
        raise SpecError(
            str(error),
            file=location,
            line=line + text.count("\n", 0, at),
            column=at - text.rfind("\n", 0, at),
            hint="Write null, or leave the row out.",
        ) from None


def _kind(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")

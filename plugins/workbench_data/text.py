"""Readers for text files. Every error names the file and the line, and says what to write instead."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import SpecError

Row = dict[str, Any]
_TYPES = {"int": int, "float": float, "str": str, "json": json.loads}


def read_jsonl(location: str, options: Mapping[str, Any]) -> list[Row]:
    """One JSON object a line; empty lines are skipped."""
    _known(options, (), location)
    rows = []
    for number, line in enumerate(_text(location).split("\n"), 1):
        if not line.strip():
            continue
        row = _parse(line, location, number)
        if not isinstance(row, dict):
            raise SpecError(f"a row must be an object, this is {_kind(row)}", file=location, line=number, column=1,
                            hint='Write e.g. {"text": "...", "label": "..."}.')  # fmt: skip
        rows.append(row)
    return _some(rows, location)


def read_json(location: str, options: Mapping[str, Any]) -> list[Row]:
    """A list of objects; options `{path: data.rows}` says where it lies inside the file."""
    _known(options, ("path",), location)
    value = _parse(_text(location), location, 1)
    for part in str(options.get("path", "")).split(".") if options.get("path") else ():
        if not isinstance(value, dict) or part not in value:
            raise SpecError(f"there is no '{part}' on the path '{options['path']}'", file=location, line=1, column=1,
                            hint="Correct data: {options: {path: ...}}.")  # fmt: skip
        value = value[part]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise SpecError("the file must be a list of objects", file=location, line=1, column=1,
                        hint="Write [{...}, {...}], or say where the list is with data: {options: {path: ...}}.")  # fmt: skip
    return _some(value, location)


def read_csv(location: str, options: Mapping[str, Any]) -> list[Row]:
    """Comma-separated with a header. Cells stay text; options `{types: {price: float}}` converts columns."""
    return _delimited(location, options, ",")


def read_tsv(location: str, options: Mapping[str, Any]) -> list[Row]:
    """Tab-separated with a header, else like csv."""
    return _delimited(location, options, "\t")


def _delimited(location: str, options: Mapping[str, Any], delimiter: str) -> list[Row]:
    _known(options, ("types", "delimiter"), location)
    types = dict(options.get("types") or {})
    for column, name in types.items():
        if name not in _TYPES:
            raise SpecError(f"unknown type '{name}' for the column '{column}'", file=location,
                            hint=f"Known: {', '.join(_TYPES)}.")  # fmt: skip
    csv.field_size_limit(100_000_000)
    reader = csv.reader(
        _text(location).splitlines(keepends=True), delimiter=options.get("delimiter", delimiter), strict=True
    )
    rows: list[Row] = []
    header: list[str] = []
    try:
        for cells in reader:
            if not cells:
                continue
            if not header:
                header = _header(cells, location)
                continue
            if len(cells) != len(header):
                raise SpecError(f"{len(cells)} cells, the header has {len(header)}", file=location, line=reader.line_num,
                                column=1, hint="Put cells that contain the delimiter into quotes.")  # fmt: skip
            rows.append({c: _typed(v, types.get(c), c, location, reader.line_num)
                         for c, v in zip(header, cells, strict=True)})  # fmt: skip
    except csv.Error as error:
        raise SpecError(f"not a table: {error}", file=location, line=reader.line_num, column=1,
                        hint="Check the quotes around here.") from None  # fmt: skip
    return _some(rows, location)


def _header(cells: list[str], location: str) -> list[str]:
    for index, name in enumerate(cells):
        if name in cells[:index]:
            raise SpecError(f"the column '{name}' stands twice in the header", file=location, line=1, column=1,
                            hint="Rename one of them.")  # fmt: skip
    return cells


def _typed(cell: str, kind: str | None, column: str, location: str, line: int) -> Any:
    if kind is None:
        return cell
    try:
        return _TYPES[kind](cell)
    except ValueError:
        raise SpecError(f"'{cell[:60]}' in the column '{column}' is no {kind}", file=location, line=line, column=1,
                        hint=f"Correct the cell, or take '{column}' out of data: {{options: {{types: ...}}}}.") from None  # fmt: skip


def _text(location: str) -> str:
    data = Path(location).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError("the file is not UTF-8", file=location, line=data.count(b"\n", 0, error.start) + 1,
                        column=error.start - data.rfind(b"\n", 0, error.start), hint="Save it as UTF-8.") from None  # fmt: skip


def _parse(text: str, location: str, line: int) -> Any:
    def odd(name: str) -> Any:
        raise SpecError(f"{name} is not JSON", file=location, line=line, column=text.find(name) + 1,
                        hint="Write null, or leave the row out.")  # fmt: skip

    try:
        return json.loads(text, parse_constant=odd)
    except json.JSONDecodeError as error:
        raise SpecError(f"not JSON: {error.msg}", file=location, line=line + error.lineno - 1, column=error.colno,
                        hint='Each row is one object, e.g. {"text": "...", "label": "..."}.') from None  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise SpecError(f"not usable JSON: {error}", file=location, line=line, column=1,
                        hint="Numbers have at most 4,300 digits, and nesting its limits.") from None  # fmt: skip


def _kind(value: Any) -> str:
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")


def _known(options: Mapping[str, Any], names: tuple[str, ...], location: str) -> None:
    for name in options:
        if name not in names:
            raise SpecError(f"this reader has no option '{name}'", file=location,
                            hint=f"Known: {', '.join(names) or 'none'}.")  # fmt: skip


def _some(rows: list[Row], location: str) -> list[Row]:
    if not rows:
        raise SpecError(
            "the file has no rows", file=location, line=1, column=1, hint="Put at least three rows into it."
        )
    return rows

"""Checks of data read from a run database: checksums match, and texts are JSON. Damage raises a StoreError that names
the location."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from workbench.base.text import one_line, short
from workbench.errors import StoreError

T = TypeVar("T", dict[str, Any], list[Any])


def checksum(*parts: object) -> str:
    """Return 24 hexadecimal digits that change with any part. They detect damage, not forgery."""
    text = "\0".join("" if part is None else str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def text_key(text: str) -> str:
    """Return the key of a large text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def check_sum(row: sqlite3.Row | dict[str, Any], place: str, *parts: object, column: str = "checksum") -> None:
    """Raise StoreError if the parts do not match the row's checksum. Rows from before there were checksums have none.
    place: names the table and the row."""
    if row[column] is not None and row[column] != checksum(*parts):
        raise StoreError(f"{place} is damaged: its content does not match its checksum; use a copy of the database")


def parse_json(text: str, place: str, kind: type[T]) -> T:
    """Parse a stored text as JSON of a type. Raises a StoreError that names the location."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError, TypeError):
        value = None
    if not isinstance(value, kind):
        what = "an object" if kind is dict else "a list"
        raise StoreError(f"{place} is damaged: it is not JSON of {what}; use a copy of the database")
    return value


def read_report(row: Any) -> dict[str, Any] | None:
    """Return the report of a stored run; None if it has none. Raises StoreError if it is damaged."""
    if not row["report"]:
        return None
    place = f"the report of run {row['run']} (table runs)"
    check_sum(row, place, row["run"], row["report"])
    return parse_json(row["report"], place, dict)


def read_spec(row: Any) -> str:
    """Return the text of the workflow file that a stored run started with. Raises StoreError if it is damaged."""
    kept = (row["run"], row["name"], row["file"], row["spec"])
    check_sum(row, f"the workflow file of run {row['run']} (table runs)", *kept, column="spec_checksum")
    return row["spec"]


def read_options(row: Any) -> dict[str, Any]:
    """Return the options that a stored run started with, `sets` as a list of (address, value). Raises StoreError."""
    place = f"the options of run {row['run']} (table runs)"
    options = parse_json(row["options"], place, dict)
    outside = options.get("outside")
    try:
        sets = [(str(address), value) for address, value in options.get("sets") or ()]
        outside = None if outside is None else [(str(address), value) for address, value in outside]
    except (TypeError, ValueError):
        raise StoreError(f"{place} is damaged: its settings are no pairs; use a copy of the database") from None
    return {"out": None, **options, "sets": sets, "outside": outside}


def told_apart(row: Any) -> str:
    """Return what tells a stored run from others of its name: the name of its file, if it differs, and the settings of
    its start. Damaged options tell nothing."""
    file = Path(row["file"] or "")
    parts = [file.name] if file.name and file.stem != row["name"] else []
    with suppress(StoreError):
        parts += [f"{address}={short(value, 40)}" for address, value in read_options(row)["sets"]]
    return one_line(", ".join(parts))

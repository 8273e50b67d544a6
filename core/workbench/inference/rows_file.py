"""The rows of a file as inputs of a workflow, read with the options of the workflow file's data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.plugins import plugins
from workbench.task import Example, RowDraw, read_rows, reader_of

Row = Mapping[str, Any]

_WHOLE = RowDraw(hint="Split the file into several, and predict one after the other.")


def read_rows_file(place: str, data: Any, inputs: Collection[str]) -> tuple[Sequence[Row], list[Row]]:
    """Return the rows of a file as they are, and with the names that the workflow reads. Raises SpecError.

    Args:
        data: the section of the workflow file, unchecked: its `options` apply to a file of the same kind, its `fields`
            to every file. Entries for columns that are not read, such as the label's, are ignored.
        inputs: the fields that the workflow reads.
    """
    data = data if is_dict(data) else {}
    rows = read_rows(place, Path.cwd(), _options(place, data, inputs), _WHOLE)
    fields = data.get("fields")
    names = {new: old for new, old in fields.items() if new in inputs} if is_dict(fields) else {}
    return rows, [_renamed(row, names) for row in rows] if names else [*rows]


def _options(place: str, data: Mapping[str, Any], inputs: Collection[str]) -> dict[str, Any]:
    options = data.get("options")
    files = [data[key] for key in ("file", "train", "val", "test") if isinstance(data.get(key), str)]
    kind = _reader(place)
    if not is_dict(options) or kind is None or (files and kind not in map(_reader, files)):
        return {}
    found = {name: value for name, value in options.items() if name != "columns"}
    if is_dict(types := found.get("types")):
        found["types"] = {column: kind for column, kind in types.items() if column in _columns(data, inputs)}
    return found


def _columns(data: Mapping[str, Any], inputs: Collection[str]) -> set[str]:
    """Return the columns that hold the inputs."""
    fields = data.get("fields")
    return {str(fields.get(name, name)) if is_dict(fields) else name for name in inputs}


def _reader(place: str) -> Any:
    """Return the reader of a file; None for READER:PLACE, which has its options in the place."""
    name = reader_of(place)
    prefixed = place.startswith(f"{name}:")
    return plugins().get("readers", name) if name in plugins().names("readers") and not prefixed else None


def _renamed(row: Row, names: Mapping[str, str]) -> Row:
    found, example = dict(row), Example("", row)
    for new, old in names.items():
        if (value := example.get(old)) is not None:
            found[new] = value
    return found

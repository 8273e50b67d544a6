"""Rows of tables of Arrow, a batch at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from workbench.base.data_files import MOST_ROW, MOST_TEXT, too_large
from workbench.base.short_floats import shortest_float
from workbench.errors import SpecError
from workbench.task import RowWithHoles
from workbench_readers.common import Row, fault
from workbench_readers.values import as_json

#: Reads batches, each with the place of its first row: all of them, or at least those with the rows at these places.
Read = Callable[[Sequence[int] | None], Iterator[tuple[int, Any]]]

#: Bytes of a number as an object of Python, in a list.
BYTES_A_VALUE = 40


class ArrowRows:
    """The rows of a table (`workbench.task.Table`).

    Args:
        count: of rows.
        names: of columns.
        features: what a hub says of the columns.
    """

    def __init__(self, count: int, names: Sequence[str], read: Read, features: Mapping[str, Any], location: str):
        self._count, self._read, self._features, self._location = count, read, features, location
        if twice := [name for name in names if names.count(name) > 1]:
            raise fault(f"the column '{twice[0]}' occurs twice", location, "Rename one of them.")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        for first, batch in self._read(None):
            yield from self._rows(batch, first)

    def take(self, places: Sequence[int]) -> Iterator[Row]:
        """The rows at these places, which ascend."""
        for first, batch in self._read(places):
            for place in places[bisect_left(places, first) : bisect_left(places, first + len(batch))]:
                yield from self._rows(batch.slice(place - first, 1), place)

    def _rows(self, batch: Any, first: int) -> Iterator[Row]:
        """The rows of a batch, of which as many are made at once as there is room for."""
        longest = max(map(_longest_text, batch.columns), default=0)
        if longest > MOST_TEXT:
            raise too_large(f"a text in one of the rows from {first + 1:,} on", MOST_TEXT, self._location)
        step = max(1, MOST_ROW // max(longest, 1, *map(_widest, batch.columns)))
        for at in range(0, len(batch), step):
            part = batch.slice(at, step)
            if step == 1 and max(map(_widest, part.columns)) > MOST_ROW:
                raise too_large(f"row {first + at + 1:,}, read as lists,", MOST_ROW, self._location)
            yield from self._made(part, first + at)

    def _made(self, batch: Any, first: int) -> Iterator[Row]:
        names, widths = batch.schema.names, [_narrow_floats(kind) for kind in batch.schema.types]
        columns = [_cells(column) for column in batch.columns]
        for number, cells in enumerate(zip(*columns, strict=True), first + 1):
            holes = dict[str, SpecError]()

            def missing(field: str, value: Any, problem: str) -> None:
                hint = "Replace it by null, or leave the row out."
                message = f"the column '{field}' of row {number} {problem}"  # noqa: B023 (called before the next row)
                holes.setdefault(field, fault(message, self._location, hint, number))  # noqa: B023

            row = {
                name: as_json(cell if width is None else width(cell), missing, name, self._features.get(name))
                for name, cell, width in zip(names, cells, widths, strict=True)
            }
            yield RowWithHoles(row, holes) if holes else row


def _cells(column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):  # a time that Python's has no room for: nanoseconds, the year 10000
        return column.cast("string").to_pylist()


def _longest_text(array: Any) -> int:
    """The length in bytes of the longest text of an array, at any depth."""
    from pyarrow import types

    kind = array.type
    if hasattr(array, "storage"):
        return _longest_text(array.storage)
    if types.is_dictionary(kind):
        return _longest_text(array.dictionary)
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        compute: Any = import_module("pyarrow.compute")
        return compute.max(compute.binary_length(array)).as_py() or 0
    if types.is_struct(kind):
        return max(map(_longest_text, array.flatten()), default=0)
    if types.is_map(kind):
        return max(_longest_text(array.keys), _longest_text(array.items))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _longest_text(array.flatten())
    return 0


def _widest(array: Any) -> int:
    """A bound on the bytes that one value of an array takes as numbers and lists of Python, at any depth."""
    from pyarrow import types

    kind = array.type
    if hasattr(array, "storage"):
        return _widest(array.storage)
    if types.is_dictionary(kind):
        return _widest(array.dictionary)
    if types.is_struct(kind):
        return sum(map(_widest, array.flatten()))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        compute: Any = import_module("pyarrow.compute")
        return (compute.max(compute.list_value_length(array)).as_py() or 0) * _widest(array.flatten())
    return BYTES_A_VALUE


def _narrow_floats(kind: Any) -> Callable[[Any], Any] | None:
    """Find what shortens each number of fewer than 64 bits in a value of a type; None: the type has none."""
    from pyarrow import types

    if types.is_floating(kind) and kind.bit_width < 64:
        return lambda value: None if value is None else shortest_float(value, kind.bit_width)
    if types.is_dictionary(kind):
        return _narrow_floats(kind.value_type)
    if types.is_map(kind):
        keys, items = (_narrow_floats(inner) or _same for inner in (kind.key_type, kind.item_type))
        if keys is _same is items:
            return None
        return lambda value: None if value is None else [(keys(k), items(v)) for k, v in value]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _narrow_floats(kind.value_type)
        return None if inner is None else lambda value: None if value is None else [*map(inner, value)]
    if types.is_struct(kind):
        inside = {field.name: narrow for field in kind if (narrow := _narrow_floats(field.type)) is not None}
        if not inside:
            return None
        return lambda value: (
            None if value is None else {k: inside[k](v) if k in inside else v for k, v in value.items()}
        )
    return None


def _same(value: Any) -> Any:
    return value

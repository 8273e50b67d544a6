"""Rows of Arrow tables, one batch at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from workbench.base.data_files import MAX_ROW, MAX_TEXT, too_large
from workbench.base.short_floats import shortest_float
from workbench.errors import SpecError
from workbench.task import ReadRow
from workbench_readers.common import Row, fault
from workbench_readers.values import as_json

#: Reads batches, each with the place of its first row: all, or at least those with the rows at the given places.
Read = Callable[[Sequence[int] | None], Iterator[tuple[int, Any]]]

#: Minimum bytes of a list's value in Python: a reference. Numbers and other values without text are separate objects,
#: except for small whole numbers. The overhead of lists is counted in part.
REFERENCE, _LIST, _NUMBER, _OTHER = 8, 16, 32, 120
#: Advice for a column that is too large for a row.
LEAVE_OUT = "Leave the column out with data: {options: {columns: [...]}}, or shorten it."


class ArrowRows:
    """The rows of a table (`workbench.task.Table`).

    Args:
        count: number of rows.
        names: names of the columns.
        features: a hub's description of the columns.
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
        """Yield the rows at these places, which must ascend."""
        for first, batch in self._read(places):
            for place in places[bisect_left(places, first) : bisect_left(places, first + len(batch))]:
                yield from self._rows(batch.slice(place - first, 1), place)

    def _rows(self, batch: Any, first: int) -> Iterator[Row]:
        """Yield the rows of a batch, in parts that fit into the allowed memory."""
        longest = max(map(_longest_text, batch.columns), default=0)
        if longest > MAX_TEXT:
            raise too_large(f"a text in one of the rows from {first + 1:,} on", MAX_TEXT, self._location)
        yield from self._parts(batch, first)

    def _parts(self, batch: Any, first: int) -> Iterator[Row]:
        sizes = [_bytes(column) for column in batch.columns]
        if sum(sizes) <= MAX_ROW:
            yield from self._made(batch, first)
        elif len(batch) > 1:
            half = len(batch) // 2
            yield from self._parts(batch.slice(0, half), first)
            yield from self._parts(batch.slice(half), first + half)
        else:
            name = batch.schema.names[sizes.index(max(sizes))]
            what = f"row {first + 1:,}, most of it in the column '{name}',"
            raise too_large(what, MAX_ROW, self._location, None, LEAVE_OUT)

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
            yield ReadRow(row, number, holes)


def _cells(column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):  # a time that Python cannot hold: nanoseconds, the year 10000
        return column.cast("string").to_pylist()


def _longest_text(array: Any) -> int:
    """Return the length in bytes of the longest text in an array, at any depth."""
    compute: Any = import_module("pyarrow.compute")
    if _is_text(array.type):
        return compute.max(compute.binary_length(array)).as_py() or 0
    return max(map(_longest_text, _parts_of(array)), default=0)


def _bytes(array: Any) -> int:
    """Estimate the bytes that an array's values take in Python, at any depth."""
    from pyarrow import types

    compute: Any = import_module("pyarrow.compute")
    kind = array.type
    if _is_text(kind):
        return len(array) * _NUMBER + (compute.sum(compute.binary_length(array)).as_py() or 0)
    if types.is_dictionary(kind):  # each of its values is created again at each occurrence
        of = compute.binary_length(array.dictionary) if _is_text(kind.value_type) else None
        texts = 0 if of is None else compute.sum(compute.take(of, array.indices)).as_py() or 0
        return len(array) * _NUMBER + texts
    if types.is_nested(kind) or hasattr(array, "storage"):
        return len(array) * _LIST + sum(map(_bytes, _parts_of(array)))
    if types.is_fixed_size_binary(kind):
        return len(array) * (_NUMBER + kind.byte_width)
    if types.is_boolean(kind) or types.is_int8(kind) or types.is_uint8(kind):
        return len(array) * REFERENCE
    return len(array) * (_NUMBER if types.is_integer(kind) or types.is_floating(kind) else _OTHER)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(
        is_kind(kind) for is_kind in (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)
    )


def _parts_of(array: Any) -> Sequence[Any]:
    """Return the arrays inside an array: the values of its lists, the fields of its objects, the values of a
    dictionary. None for numbers."""
    from pyarrow import types

    kind = array.type
    if hasattr(array, "storage"):
        return [array.storage]
    if types.is_dictionary(kind):
        return [array.dictionary]
    if types.is_struct(kind):
        return array.flatten()
    if types.is_map(kind):
        return array.cast(_listed(kind)).flatten().flatten()
    return [array.flatten()] if types.is_nested(kind) and hasattr(array, "flatten") else []


def _listed(kind: Any) -> Any:
    """Return the type of a map's pairs, as a list."""
    import pyarrow

    return pyarrow.list_(pyarrow.struct([("key", kind.key_type), ("value", kind.item_type)]))


def _narrow_floats(kind: Any) -> Callable[[Any], Any] | None:
    """Find the function that shortens numbers of fewer than 64 bits in a value of a type; None if the type has none."""
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

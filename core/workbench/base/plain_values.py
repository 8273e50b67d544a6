"""Conversion of values of other libraries, such as numpy and pandas, to plain values of Python."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from workbench.base.short_floats import shortest_float
from workbench.base.type_guards import is_dict, is_list


def plain(value: Any) -> Any:
    """Convert the scalars and arrays in a value to numbers, booleans, texts and lists, and missing values such as NaT
    and pandas.NA to None. Values of unknown kinds do not change.

    Floats of fewer than 64 bits become the shortest decimals that are stored as the same number.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_list(value):
        return [*map(plain, value)]
    if is_dict(value):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, Decimal):
        return _number(value)
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    listed: Callable[[], Any] | None = getattr(value, "tolist", None)  # numpy's
    if listed is None:
        return value
    kind, bits = getattr(getattr(value, "dtype", None), "kind", ""), 8 * getattr(value, "itemsize", 8)
    if kind == "M" or kind == "m":
        return _texts(value)
    found = listed()
    if kind == "f" and bits < 64:
        return _shortened(found, bits)
    return found if type(found) is type(value) else plain(found)


def plain_or_text(value: Any) -> Any:
    """Convert like `plain`, and values of unknown kinds to text: the `default` of `json.dumps`."""
    found = plain(value)
    return str(value) if found is value else found


def records_of(rows: Any) -> Any:
    """Return the rows of a DataFrame as dicts of plain values, with missing values as None; anything else unchanged."""
    if not (hasattr(rows, "iloc") and hasattr(rows, "columns")):
        return rows
    columns = [_cells(rows.iloc[:, place]) for place in range(len(rows.columns))]
    names = [str(name) for name in rows.columns]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _cells(column: Any) -> list[Any]:
    kind, bits = getattr(column.dtype, "kind", ""), 8 * getattr(column.dtype, "itemsize", 8)
    cells = [None if gone else plain(cell) for cell, gone in zip(column.tolist(), column.isna().tolist(), strict=True)]
    return [cell if cell is None else shortest_float(cell, bits) for cell in cells] if kind == "f" else cells


def _shortened(value: Any, bits: int) -> Any:
    return [_shortened(one, bits) for one in value] if is_list(value) else shortest_float(value, bits)


def _texts(times: Any) -> Any:
    """Return a date or duration of numpy, or an array of them, in Python's notation."""
    if getattr(times, "ndim", 0):
        return [*map(_texts, times)]
    found = times.astype(f"{times.dtype.str[1:3]}[us]").item()
    return None if found is None else str(found)


def _number(value: Decimal) -> Any:
    """Return the number, or its text if a float would be another number."""
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value() and value.as_tuple().exponent == 0:
        return int(value)
    number = float(value)
    return number if Decimal(repr(number)) == value else str(value)

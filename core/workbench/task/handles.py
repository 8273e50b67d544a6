"""Names of rows for people: the value of the column `data: {id: ...}`, or file and line with the row's first words.

A handle is no part of a row's identity: keys in the database and in JSON are the ids of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from workbench.errors import SpecError, StoreError, suggest
from workbench.task.dataset import Dataset, Example, SealedRows

#: Characters of a row to quote, and rows to list in a warning.
QUOTED, LISTED = 32, 4


def name_rows(dataset: Dataset, inputs: Sequence[str], column: str | None) -> Dataset:
    """Return the dataset with a handle for each row. Raises SpecError if no row has the column.

    inputs: the fields to quote from. column: the field whose values name rows, unless empty or repeated; None: `id`.
    """
    parts = (dataset.train, dataset.val, dataset.test.open())
    rows = [row for part in parts for row in part]
    if column is not None and rows and not any(column in row for row in rows):
        raise SpecError(f"no row has the field '{column}'", hint=suggest(column, rows[0]), path=("data", "id"))
    said = Counter(_value(row, column or "id") for row in rows)
    train, val, test = (tuple(_named(row, inputs, column or "id", said) for row in part) for part in parts)
    return replace(dataset, train=train, val=val, test=SealedRows(test))


def _named(row: Example, inputs: Sequence[str], column: str, said: Mapping[str, int]) -> Example:
    value = _value(row, column)
    if value and said[value] == 1:
        return Example(row.id, row.fields, value)
    texts = [value.strip() for name in inputs if name in row and isinstance(value := row[name], str)]
    words = " ".join(max(texts, key=len, default="")[: 9 * QUOTED].split())
    quoted = words if len(words) <= QUOTED else f"{words[:QUOTED].rstrip()}..."
    return Example(row.id, row.fields, f'{row.handle} "{quoted}"' if words else row.handle)


def _value(row: Example, column: str) -> str:
    value = row.get(column)
    return str(value).strip() if isinstance(value, str | int) else ""


def list_handles(rows: Sequence[Example]) -> str:
    """Return the first few handles, and the number of further rows."""
    more = f" and {len(rows) - LISTED} more" if len(rows) > LISTED else ""
    return ", ".join(row.handle for row in rows[:LISTED]) + more


def find_row(asked: str, handles: Mapping[str, str], of: str) -> str:
    """Return the id of a row by its handle, file and line, id, a prefix of the id, or its end, as in `test:17`.

    handles: by id. of: where they are, for the StoreError if no row, or several rows, match.
    """
    ids = [*handles]
    ways: Iterable[list[str]] = (
        [id_ for id_ in ids if id_ == asked],
        [id_ for id_, handle in handles.items() if asked == handle or handle.startswith(f'{asked} "')],
        [id_ for id_ in ids if id_.endswith((f":{asked}", f"/{asked}"))],
        [id_ for id_ in ids if id_.startswith(asked)],
    )
    found = next((way for way in ways if way), [])
    if len(found) == 1:
        return found[0]
    near = f" {suggest(asked, [*handles.values()])}" if len(ids) <= 20 else ""
    raise StoreError(
        f"{of} has {f'{len(found)} rows' if found else 'no row'} '{asked}'.{near} It has {len(ids)} rows"
        + (f", e.g. {handles[ids[0]]}" if ids else "")
    )

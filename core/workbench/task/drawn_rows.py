"""Selection of the rows of a file to read: all, or a draw, with no more in memory than needed or than fit."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import count, repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from workbench.base.data_files import MAX_TEXT, too_large
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError

Row = dict[str, Any]

_GIVEN = re.compile(r"-rows[/\\][0-9a-f]{16}\.jsonl$")  # the file of rows that Python gave
#: Above this number of rows, only those that the splits take are held.
MAX_ROWS = 1_000_000

#: Most levels of nested lists and objects. Python limits recursion to a few hundred.
MAX_DEPTH = 200

#: Limits on the memory for rows: a multiple of their files' size, with a least and a most number of bytes.
MAX_TIMES, MIN_HELD, MAX_HELD = 100, 256 << 20, 1 << 30


class ReadRow(dict[str, Any]):
    """A row with its place in a file.

    line: where it begins; None: its number among the rows. holes: values that a row cannot hold, such as NaN, which
    become null and are refused if read: by field name, dotted if nested, the error with the location of the value.
    place: file and line, e.g. mails.csv:236, which workbench sets.
    """

    __slots__ = ("holes", "line", "place")

    def __init__(self, row: Row, line: int | None = None, holes: Mapping[str, SpecError] = MappingProxyType({})):
        super().__init__(row)
        self.line, self.holes, self.place = line, holes, ""


def place_rows(rows: Iterable[Row], name: str, numbers: Iterable[int] | None = None) -> Iterator[ReadRow]:
    """Yield rows with their places in a file, or, for rows of Python, `row 17` for `rows[17]`. numbers: from 1."""
    for number, row in zip(count(1) if numbers is None else numbers, rows, strict=False):
        found = row if isinstance(row, ReadRow) else ReadRow(row)
        at = found.line or number
        found.place = found.place or (f"row {at - 1}" if _GIVEN.search(name) else f"{name}:{at}")
        yield found


@runtime_checkable
class Table(Protocol):
    """Rows of a known number that can be read individually. A reader may return one."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Row]: ...

    def take(self, places: Sequence[int]) -> Iterator[Row]:
        """Yield the rows at these positions, which ascend."""
        ...


@dataclass(frozen=True)
class RowDraw:
    """A draw of rows by a seed. A larger one of the same file holds all rows of a smaller one.

    Attributes:
        count: the number of rows; None: all of them.
        spare: the number that is enough if there are more than MAX_ROWS, or no room for all.
        hint: what to write instead if there is no room.
        keep: returns True for the rows to draw from; None: all.
    """

    count: int | None = None
    spare: int | None = None
    seed: int = 0
    hint: str = "Write data: {limit: N}, so that N rows are drawn, or data: {split: {train: N, val: N, test: N}}."
    keep: Callable[[Row], bool] | None = None

    def rows(self, found: Iterable[Row], location: str, size: int | None = None) -> list[Row]:
        """Return the drawn rows, in the order of the file. Raises SpecError if there are none, or if a text or the rows
        do not fit into memory.

        found: from a reader: rows, an iterator of rows, or a `Table`. size: of the files, in bytes.
        """
        room = MAX_HELD if size is None else min(MAX_HELD, max(MIN_HELD, MAX_TIMES * size))
        draw = random.Random(f"limit:{self.seed}")
        ranks: Iterator[float] = iter(draw.random, None)  # pyright: ignore[reportAssignmentType]
        held = _Held(self, room, location)
        if self.keep is not None:
            found = filter(self.keep, found)
        if isinstance(found, Table) and (count := self._count_of(len(found))) < len(found):
            order = [next(ranks) for _ in range(len(found))]
            found, ranks = found.take(sorted(nsmallest(count, range(len(order)), order.__getitem__))), repeat(0.0)
            held.wanted = None
        for number, row in enumerate(found):
            if (rank := next(ranks)) < held.highest:
                held.add(rank, number, row)
        if not (drawn := held.drawn()):
            line = 1 if Path(location).is_file() else None
            hint = "Put rows into it; optimize needs three or more."
            raise SpecError("there are no rows", file=location, line=line, column=line, hint=hint)
        return drawn

    def _count_of(self, there: int) -> int:
        if self.count is not None:
            return self.count
        return self.spare if self.spare is not None and there > MAX_ROWS else there


class _Held:
    """Rows in memory: all that were added, or those of the lowest ranks if there are too many. wanted: the number that
    is enough; None: all."""

    def __init__(self, draw: RowDraw, room: int, location: str):
        self._draw, self._room, self._location = draw, room, location
        self.wanted = draw.count if draw.count is not None else draw.spare
        self._most = MAX_ROWS if draw.count is None else 2 * draw.count
        self._rows, self._size, self._cut = list[tuple[float, int, Row, int]](), 0, draw.count is not None
        self.highest = 2.0

    def add(self, rank: float, number: int, row: Row) -> None:
        """Hold one more row. Raises SpecError if it does not fit."""
        weight = _weigh(row, self._location, number + 1)
        self._rows.append((rank, number, row, weight))
        self._size += weight
        if self._size > self._room or len(self._rows) > self._most:
            self._drop()
            if self._size > self._room:
                message = f"{len(self._rows):,} of the rows take more than {self._room >> 20} MB of memory"
                raise SpecError(message, file=self._location, hint=self._draw.hint)

    def _drop(self) -> None:
        if self.wanted is not None and len(self._rows) > self.wanted:
            self._rows = nsmallest(self.wanted, self._rows, key=lambda one: one[:2])
            self._size, self._cut = sum(one[3] for one in self._rows), True
            self.highest = self._rows[-1][0]

    def drawn(self) -> list[Row]:
        """Return the rows in the order in which they were added."""
        if self._cut:
            self._drop()
        return [row for _, _, row, _ in sorted(self._rows, key=lambda one: one[1])]


def _weigh(value: Any, location: str, number: int, field: str = "", depth: int = 0) -> int:
    """Return the bytes of memory of a value. Raises SpecError for a text that is too long, or too deep nesting."""
    if depth > MAX_DEPTH:
        raise SpecError(f"row {number} is nested too deeply", file=location, hint="Write flatter rows.")
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise too_large(f"the text in '{field}' of row {number}", MAX_TEXT, location)
        return sys.getsizeof(value)
    if is_dict(value):
        inner = (
            _weigh(one, location, number, f"{field}.{name}" if field else str(name), depth + 1)
            for name, one in value.items()
        )
        return sys.getsizeof(value) + sum(inner)
    if is_list(value):
        return sys.getsizeof(value) + sum(_weigh(one, location, number, field, depth + 1) for one in value)
    return sys.getsizeof(value)

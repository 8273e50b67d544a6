"""Examples, scores of predictions, and datasets with their three splits."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from workbench.base.hashing import canonical
from workbench.base.type_guards import copied
from workbench.errors import SealBroken, SpecError
from workbench.task.drawn_rows import ReadRow


class Example(Mapping[str, Any]):
    """A row: a read-only mapping of its fields, with an id that is stable across runs.

    A dotted name reaches into nested objects: `example["labels.answer"]`. Lists and dicts are returned as copies, so
    that user code cannot change them for others.

    handle: the name of the row for people (`workbench.task.handles`). It is no part of the row's identity.
    """

    __slots__ = ("_fields", "_nested", "handle", "id")

    id: str
    handle: str

    def __init__(self, id: str, fields: Mapping[str, Any], handle: str = ""):
        nested = any(type(value) not in _FLAT for value in fields.values())
        kept = copied(dict(fields)) if nested else fields
        for name, value in (("id", id), ("_fields", kept), ("_nested", nested), ("handle", handle or id)):
            object.__setattr__(self, name, value)

    @property
    def fields(self) -> Mapping[str, Any]:
        """Return the fields by name."""
        return copied(self._fields) if self._nested else MappingProxyType(self._fields)

    def __getitem__(self, name: str) -> Any:
        if name in self._fields:
            return copied(self._fields[name])
        value: Any = self._fields
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise KeyError(name)
            value = value[part]
        return copied(value)

    def __contains__(self, name: object) -> bool:
        if name in self._fields:
            return True
        try:
            self[str(name)]
            return True
        except KeyError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Example):
            return NotImplemented
        return (self.id, self._fields) == (other.id, other._fields)

    def __repr__(self) -> str:
        return f"Example(id={self.id!r}, fields={self._fields!r})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field '{name}'")

    def __reduce__(self) -> tuple[Any, ...]:
        return Example, (self.id, dict(self._fields), self.handle)


#: Types of immutable values.
_FLAT = frozenset((str, int, float, bool, type(None)))


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a metric: a value in [0, 1] and, optionally, feedback that an optimizer can learn from."""

    value: float
    feedback: str | None = None


class SealedRows:
    """The test split. While a search runs it is sealed: its rows cannot be read, least of all by an optimizer.

    The rows are stored pickled, so that no object within reach of a search holds them. Their number is not secret.
    """

    def __init__(self, rows: Iterable[Example]):
        rows = tuple(rows)
        self._count = len(rows)
        self._packed = zlib.compress(pickle.dumps([(row.id, dict(row.fields), row.handle) for row in rows]))
        self._sealed = 0

    def __len__(self) -> int:
        return self._count

    def open(self) -> tuple[Example, ...]:
        """Return the rows. Raises SealBroken during a search."""
        if self._sealed:
            raise SealBroken(
                "the sealed test rows were asked for before the search had ended; only the proof reads them"
            )
        return tuple(Example(*row) for row in pickle.loads(zlib.decompress(self._packed)))

    @contextmanager
    def sealed(self) -> Iterator[None]:
        """Seal the rows during the block."""
        self._sealed += 1
        try:
            yield
        finally:
            self._sealed -= 1


@dataclass(frozen=True)
class Dataset:
    """Three splits. Optimizers learn from train and select on val; test is sealed until the winner is chosen.

    data_hash changes if any row or its split changes: a run cannot be resumed on other data. It covers the rows as
    read, including those left out of the test. holes: fields with values that a row cannot hold, each with the error
    for its readers (`workbench.task.drawn_rows`). left_out: the number of rows that do not meet `data: {where: ...}`.
    """

    train: tuple[Example, ...]
    val: tuple[Example, ...]
    test: SealedRows
    warnings: tuple[str, ...] = field(default=())
    data_hash: str = ""
    holes: tuple[tuple[str, SpecError], ...] = ()
    left_out: int = 0


def content_id(row: Mapping[str, Any]) -> str:
    """Return a short hash of a row's content."""
    text = json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def make_examples(rows: Sequence[Mapping[str, Any]], fields: Mapping[str, str] | None = None) -> list[Example]:
    """Convert rows to examples. Raises SpecError for a row without one of the fields.

    fields: new fields, by name, each with the name of its value in the row: {"label": "labels.answer"} makes a nested
    value a field of its own. Rows with the same id, and equal rows without ids, get numbered ids.
    """
    named = [str(row["id"]) if isinstance(row.get("id"), str | int) else content_id(row) for row in rows]
    taken, counts = set(named), dict[str, int]()
    examples = []
    for number, (row, id_) in enumerate(zip(rows, named, strict=True), 1):
        count = counts.get(id_, 0) + 1
        made = id_ if count == 1 else f"{id_}#{count}"
        while count > 1 and made in taken:  # another row has this id
            count += 1
            made = f"{id_}#{count}"
        counts[id_] = count
        taken.add(made)
        place = row.place if isinstance(row, ReadRow) else ""
        example = Example(made, dict(row), place)
        if fields:
            example = Example(made, {**row, **_renamed(example, fields, number)}, place)
        examples.append(example)
    return examples


def _renamed(row: Example, fields: Mapping[str, str], number: int) -> dict[str, Any]:
    found = {}
    for new, old in fields.items():
        try:
            found[new] = row[old]
        except KeyError:
            have, inside = _nearest(row.fields, old)
            raise SpecError(
                f"row {number} has no field '{old}'; {f'its {inside}' if inside else 'it'} has: {have}",
                hint=f"Correct data: {{fields: {{{new}: ...}}}}, or give that row the field.",
                path=("data", "fields"),
            ) from None
    return found


def _nearest(value: Any, name: str) -> tuple[str, str]:
    """Describe the object at which a dotted name ends in nothing, and return the part of the name that leads there."""
    inside: list[str] = []
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            break
        value = value[part]
        inside.append(part)
    have = ", ".join(sorted(map(str, value))) if isinstance(value, Mapping) else f"{value!r:.60}"
    return have or "nothing", ".".join(inside)


def split_examples(
    examples: Sequence[Example], sizes: tuple[int, int, int], seed: int
) -> tuple[list[Example], list[Example], list[Example]]:
    """Shuffle examples by a seed and cut them into train, val and test of the given sizes."""
    order = list(examples)
    random.Random(f"split:{seed}").shuffle(order)
    train, val, test = sizes
    return order[:train], order[train : train + val], order[train + val : train + val + test]


def split_groups(
    examples: Sequence[Example], sizes: tuple[int, int, int], seed: int, by: str
) -> tuple[list[Example], list[Example], list[Example]]:
    """Split examples into whole groups with equal values of the field `by`. One without it, or with null, is its own
    group.

    Groups are taken in a random order that depends on the seed. Each goes to the split that is missing the largest
    share of its size, so a split may get more or fewer rows than requested. Groups left when all splits are full are
    not used.
    """
    groups: dict[str, list[Example]] = defaultdict(list)
    for number, example in enumerate(examples):
        value = example.get(by)
        groups[f"row {number}" if value is None else f"value {canonical(value)}"].append(example)
    order = list(groups.values())
    random.Random(f"groups:{seed}").shuffle(order)
    parts: tuple[list[Example], list[Example], list[Example]] = ([], [], [])
    for group in order:
        missing = [1 - len(part) / size if size else 0.0 for part, size in zip(parts, sizes, strict=True)]
        if max(missing) > 0:
            parts[missing.index(max(missing))].extend(group)
    return parts

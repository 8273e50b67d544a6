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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import SealBroken, SpecError, suggest
from workbench.hashing import canonical
from workbench.plugins import plugins


@dataclass(frozen=True, slots=True)
class Example(Mapping[str, Any]):
    """One row: a read-only mapping of its fields, with an id that is stable across runs.

    A dotted name reaches into nested objects: `example["labels.answer"]`.
    """

    id: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        if name in self.fields:
            return self.fields[name]
        value: Any = self.fields
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise KeyError(name)
            value = value[part]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, slots=True)
class Score:
    """What a metric returns: a value in [0, 1] and, optionally, feedback that an optimizer can learn from."""

    value: float
    feedback: str | None = None


class SealedRows:
    """The test split. While a search runs it is sealed: its rows cannot be read, least of all by an optimizer.

    The rows are kept packed, so that no object that a search can reach holds them. Their number is not secret.
    """

    def __init__(self, rows: Iterable[Example]):
        rows = tuple(rows)
        self._count = len(rows)
        self._packed = zlib.compress(pickle.dumps([(row.id, dict(row.fields)) for row in rows]))
        self._sealed = 0

    def __len__(self) -> int:
        return self._count

    def open(self) -> tuple[Example, ...]:
        """The rows. Raises SealBroken during a search."""
        if self._sealed:
            raise SealBroken(
                "the sealed test rows were asked for before the search had ended; only the proof reads them"
            )
        return tuple(Example(id_, fields) for id_, fields in pickle.loads(zlib.decompress(self._packed)))

    @contextmanager
    def sealed(self) -> Iterator[None]:
        """Seal the rows while the block runs."""
        self._sealed += 1
        try:
            yield
        finally:
            self._sealed -= 1


@dataclass(frozen=True)
class Dataset:
    """Three splits. Optimizers learn from train and select on val; test is sealed until the winner is chosen.

    data_hash changes when any row or its split changes: a run cannot be resumed on other data. test_hash changes when a
    test row does. Both cover the rows as they were read, including those that were left out of the test.
    """

    train: tuple[Example, ...]
    val: tuple[Example, ...]
    test: SealedRows
    warnings: tuple[str, ...] = field(default=())
    data_hash: str = ""
    test_hash: str = ""


def content_id(row: Mapping[str, Any]) -> str:
    """A short hash of a row's content."""
    text = json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def read_rows(location: str, base: Path, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a file, by the reader of its suffix, or of READER:PLACE. base: the folder of relative paths. Raises
    SpecError."""
    known = plugins().names("readers")
    prefix, colon, place = location.partition(":")
    if colon and prefix in known:
        return plugins().get("readers", prefix)(place, options)
    suffix, path = Path(location).suffix.lstrip("."), (base / location).resolve()
    if suffix not in known:
        hint = suggest(suffix, known)
        if plugins().set_aside:
            hint += f" Plugins that failed to load: {', '.join(sorted(plugins().set_aside))} (see `workbench plugins`)."
        raise SpecError(f"no reader for '{location}' (by its suffix '.{suffix}')", hint=hint)
    if not path.is_file():
        near = [p.name for p in path.parent.glob("*") if p.is_file()] if path.parent.is_dir() else []
        hint = suggest(path.name, near) if near else "Paths are relative to the workflow file."
        raise SpecError(f"there is no file {path}", hint=hint)
    return plugins().get("readers", suffix)(str(path), options)


def make_examples(rows: Sequence[Mapping[str, Any]], fields: Mapping[str, str] | None = None) -> list[Example]:
    """Rows as examples.

    fields: new fields, by name, each with the name of its value in the row: {"label": "labels.answer"} makes a nested
    value a field of its own. Equal rows get ids that differ by a running number.
    """
    seen: dict[str, int] = {}
    examples = []
    for row in rows:
        base = str(row["id"]) if isinstance(row.get("id"), str | int) else content_id(row)
        seen[base] = seen.get(base, 0) + 1
        example = Example(base if seen[base] == 1 else f"{base}#{seen[base]}", dict(row))
        if fields:
            renamed = {new: example[old] for new, old in fields.items()}
            example = Example(example.id, {**row, **renamed})
        examples.append(example)
    return examples


def split_examples(
    examples: Sequence[Example], sizes: tuple[int, int, int], seed: int
) -> tuple[list[Example], list[Example], list[Example]]:
    """Examples shuffled by a seed and cut into train, val and test of the given sizes."""
    order = list(examples)
    random.Random(f"split:{seed}").shuffle(order)
    train, val, test = sizes
    return order[:train], order[train : train + val], order[train + val : train + val + test]


def split_groups(
    examples: Sequence[Example], sizes: tuple[int, int, int], seed: int, by: str
) -> tuple[list[Example], list[Example], list[Example]]:
    """The same with groups that stay whole: examples with equal values of the field `by`. One without it, or with
    null, is a group by itself.

    Groups are taken in an order that the seed decides. Each goes to the split that lacks the largest share of its size,
    so that a split may get more rows than asked, and others fewer; what is left when all are full is not used.
    """
    groups: dict[str, list[Example]] = defaultdict(list)
    for number, example in enumerate(examples):
        value = example.get(by)
        groups[f"row {number}" if value is None else f"value {canonical(value)}"].append(example)
    order = list(groups.values())
    random.Random(f"groups:{seed}").shuffle(order)
    parts: tuple[list[Example], list[Example], list[Example]] = ([], [], [])
    for group in order:
        lacking = [1 - len(part) / size if size else 0.0 for part, size in zip(parts, sizes, strict=True)]
        if max(lacking) > 0:
            parts[lacking.index(max(lacking))].extend(group)
    return parts

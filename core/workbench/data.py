"""Examples, predictions' scores, and datasets with their three splits."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Example(Mapping[str, Any]):
    """One row: a read-only mapping of its fields, and an id that is stable across runs.

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
    """What a metric returns: a value in [0, 1] and, optionally, words that an optimizer can learn from."""

    value: float
    feedback: str | None = None


@dataclass(frozen=True)
class Dataset:
    """train: optimizers learn from it. val: they select on it. test: sealed until the winner is chosen."""

    train: tuple[Example, ...]
    val: tuple[Example, ...]
    test: tuple[Example, ...]
    warnings: tuple[str, ...] = field(default=())


def content_id(row: Mapping[str, Any]) -> str:
    """A short hash of a row's content."""
    text = json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def make_examples(rows: Sequence[Mapping[str, Any]], fields: Mapping[str, str] | None = None) -> list[Example]:
    """Rows as examples; `fields` renames: {"label": "labels.answer"} makes that nested value a field of its own.

    Equal rows get ids that differ by a running number, so that every row keeps an identity.
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
    """A seeded shuffle cut into train, val and test of the given sizes."""
    order = list(examples)
    random.Random(f"split:{seed}").shuffle(order)
    train, val, test = sizes
    return order[:train], order[train : train + val], order[train + val : train + val + test]


def input_signature(example: Example, names: Sequence[str]) -> str:
    """The normalised inputs of an example: equal strings mean that two splits share a row."""
    parts = (json.dumps(example[n], sort_keys=True, default=str) if n in example else "" for n in names)
    return " ".join(" ".join(parts).lower().split())

"""Rows that are like earlier ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from workbench.base.hashing import canonical


class Duplicates:
    """Finds rows that are like kept ones in a field: texts by the share of common words, other values if equal.

    Source: self-instruct (arXiv 2212.10560, section 2.2) drops instructions by their overlap (ROUGE-L 0.7). Departure:
    words without their order, over all words of both texts (Jaccard).

    limits: by field, the share from which texts are alike; with 1 only equal ones are.
    """

    def __init__(self, limits: Mapping[str, float]):
        self._limits = limits
        self._words: dict[str, list[frozenset[str]]] = {name: [] for name in limits}
        self._values: dict[str, set[str]] = {name: set() for name in limits}
        self._seen = set[str]()

    def repeats(self, row: Mapping[str, Any]) -> bool:
        """Return True for a row that was asked about before, kept or not, and remember it. Fields that a row does not
        have yet are left out."""
        there = {name: row[name] for name in self._limits if name in row}
        said = canonical(there)
        known = bool(there) and said in self._seen
        self._seen.add(said)
        return known

    def find(self, row: Mapping[str, Any]) -> str | None:
        """The field in which a row is like a kept one; None if it is like none."""
        for name, limit in self._limits.items():
            value = row.get(name)
            if isinstance(value, str) and limit < 1:
                words = split_words(value)
                if any(compute_overlap(words, other) >= limit for other in self._words[name]):
                    return name
            elif value not in (None, [], {}) and canonical(value) in self._values[name]:
                return name
        return None

    def keep(self, row: Mapping[str, Any], fields: Iterable[str] | None = None) -> None:
        """Let later rows differ from this one. fields: only in these."""
        for name in self._limits if fields is None else set(fields) & self._limits.keys():
            value = row.get(name)
            if isinstance(value, str) and self._limits[name] < 1:
                self._words[name].append(split_words(value))
            elif value is not None:
                self._values[name].add(canonical(value))


def split_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def compute_overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """The number of shared words divided by the number of all words (Jaccard)."""
    return len(a & b) / len(a | b) if a or b else 1.0

"""Search by words: bm25 by SQLite's FTS5, or bm25s if SQLite was built without it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from workbench.kit.prompting import plain_adapter as plain
from workbench.kit.searching import WordIndex

#: Maximum words of a query: further ones add little and cost time.
MOST_WORDS = 128


def split_words(text: str) -> list[str]:
    """The distinct words of a text in lower case, in order."""
    return list(dict.fromkeys(re.findall(r"\w+", text.lower())))


def join_fields(values: Mapping[str, Any], names: Sequence[str]) -> str:
    """The searchable text: the values of the input fields."""
    return " ".join(plain.as_text(values[n]) for n in names if n in values)


@cache
def has_fts5() -> bool:
    """Return True if this SQLite has full-text search."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("create virtual table probe using fts5(text)")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


class Fts5:
    """A bm25 index of texts, in a database in memory."""

    def __init__(self, texts: Sequence[str]):
        # Nodes are shared: one may be created in one thread and run in another.
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.execute("create virtual table texts using fts5(text)")
        rows = [(i + 1, " ".join(re.findall(r"\w+", t.lower()))) for i, t in enumerate(texts)]
        self._connection.executemany("insert into texts (rowid, text) values (?, ?)", rows)

    def __del__(self) -> None:
        if connection := getattr(self, "_connection", None):
            connection.close()

    def scores(self, query: str) -> dict[int, float]:
        """bm25 by index, higher is nearer; only texts that share a word with the query."""
        words = split_words(query)[:MOST_WORDS]
        if not words:
            return {}
        match = " OR ".join(f'"{word}"' for word in words)
        # In FTS5, the best match has the lowest number.
        found = self._connection.execute("select rowid - 1, -bm25(texts) from texts where texts match ?", (match,))
        return dict(found.fetchall())


def make_lexical_index(texts: Sequence[str]) -> Fts5 | WordIndex:
    return Fts5(texts) if has_fts5() else WordIndex(texts)


def scale_scores(scores: dict[int, float]) -> dict[int, float]:
    """Scores as shares of the best one, in [0, 1]."""
    best = max(scores.values(), default=0.0)
    return {index: max(0.0, score) / best if best > 0 else 0.0 for index, score in scores.items()}

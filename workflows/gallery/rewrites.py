"""A query and its rewrite, compared by what they give and by what they cost (gen_rewrite.yaml).

Databases of one schema are drawn, small ones with empty tables and NULLs, in search of one on which both differ. That
none is found is no proof. Models' SQL runs confined.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import Any

from workbench_environments.confined_sql import Database

#: Tables and their columns. `key` numbers the rows; a column with `?` may be NULL.
TABLES = {
    "customers": {"id": "key", "name": "text", "city": "text?"},
    "orders": {"id": "key", "customer": "integer?", "payer": "integer?", "day": "integer", "amount": "integer?"},
}
KINDS = {"key": "INTEGER PRIMARY KEY", "text": "TEXT NOT NULL", "text?": "TEXT", "integer": "INTEGER NOT NULL"}


def _created(table: str, columns: dict[str, str]) -> str:
    listed = ", ".join(f"{name} {KINDS.get(kind, 'INTEGER')}" for name, kind in columns.items())
    return f"CREATE TABLE {table} ({listed});"


SCHEMA = "\n".join(_created(table, columns) for table, columns in TABLES.items())
#: A rewrite counts that is so much faster (GenRewrite counts by 2x, too).
MIN = 2.0


def schema() -> str:
    """Tells the tables, and which columns may be NULL."""
    return SCHEMA


def find_difference(query: str, rewrite: str, nulls: float = 0.25) -> str:
    """Tells a small database on which a rewrite gives other rows than its query, or why it cannot run; none, if neither
    is found. nulls: their share among values that may be NULL."""
    return _differ(query, rewrite, range(80), nulls)


def measure_speedup(query: str, rewrite: str, fault: str) -> float:
    """Steps of SQLite's machine that a query takes for one of its rewrite, on a larger database; 0 for a wrong one."""
    if fault != "none":
        return 0.0
    with Database.make("\n".join([SCHEMA, *_inserts(draw_tables(0, 200))]), reads=True) as database:
        database.run(query)
        slow = database.steps
        database.run(rewrite)
        return round(slow / max(1, database.steps), 1)


def score(example: Any, prediction: Any) -> tuple[float, str]:
    """The share of queries whose rewrite is at least twice as fast and equal, on databases that no search has seen."""
    told = []
    for query, rewrite in zip(example["queries"], prediction.get("rewrites") or [], strict=False):
        fault = _differ(query, str(rewrite), range(1_000, 1_300)) if rewrite != query else "it is the query"
        faster = measure_speedup(query, str(rewrite), fault)
        told.append((faster >= MIN, f"{faster} times as fast" if fault == "none" else fault))
    return sum(right for right, _ in told) / len(example["queries"]), "; ".join(words for _, words in told)


def draw_tables(seed: int, rows: int, nulls: float = 0.25) -> dict[str, list[list[Any]]]:
    """Up to so many rows for each table, of few values, so that they meet."""
    draw = random.Random(seed)

    def value(kind: str, number: int) -> Any:
        if kind == "key":
            return number
        if kind.endswith("?") and draw.random() < nulls:
            return None
        return draw.choice("abc") if kind.startswith("text") else draw.randint(1, max(2, rows // 2))

    counts = {table: rows if rows > 10 else draw.randint(0, rows) for table in TABLES}
    return {t: [[value(k, n + 1) for k in TABLES[t].values()] for n in range(count)] for t, count in counts.items()}


def _inserts(tables: dict[str, list[list[Any]]]) -> list[str]:
    lines = {t: ", ".join(f"({', '.join(map(_written, row))})" for row in rows) for t, rows in tables.items()}
    return [f"INSERT INTO {table} VALUES {listed};" for table, listed in lines.items() if listed]


def _written(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _differ(query: str, rewrite: str, seeds: Iterable[int], nulls: float = 0.25) -> str:
    """As find_difference, on the databases of these seeds, the smallest first."""
    ordered = re.search(r"(?i)\border\s+by\b[^()]*$", query) is not None
    with Database.make(SCHEMA) as database:
        if database.verbs(rewrite) not in ([], ["select"]):
            return "error: a rewrite is a query, and changes nothing"
        for seed in sorted(seeds, key=lambda seed: seed % 5):
            tables = draw_tables(seed, 1 + seed % 5, nulls)
            for statement in [*(f"DELETE FROM {table}" for table in TABLES), *_inserts(tables)]:
                database.run(statement)
            wanted = database.run(query)
            try:
                given = database.run(rewrite)
            except ValueError as error:
                return f"error: {error}"
            if given != wanted if ordered else sorted(map(repr, given)) != sorted(map(repr, wanted)):
                return (
                    f"On {' '.join(_inserts(tables)) or 'empty tables'} the query gives {wanted}, the rewrite {given}"
                )
    return "none"

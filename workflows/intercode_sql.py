"""Questions about databases: a tool that runs SQL, and a metric that compares what two queries give.

Each call gets a database of its own, made from `dbs/NAME.sql`, in a process that can reach nothing: what a statement
does ends with it.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench_environments.confined_sql import Database

ROWS = 20  # so many rows are shown
MAX = 100_000  # so many rows are compared
HERE = Path(__file__).resolve().parent
FOLDERS = (HERE / "data/intercode_sql/dbs", HERE.parent.parent / "shared/data/intercode_sql/dbs")

_SKIP = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z)|\()+", re.DOTALL)
_TOKEN = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|[()]|\w+", re.DOTALL)
_MAIN = {"select", "values", "insert", "update", "delete", "replace"}


def keyword(statement: str) -> str:
    """The first keyword in lower case: that of the main statement behind WITH, and behind comments and brackets.

    What begins with no word gives "".
    """
    begun = _SKIP.match(statement)
    body = statement[begun.end() :] if begun else statement
    word = re.match(r"[A-Za-z]+", body)
    first = word.group().lower() if word else ""
    if first != "with":
        return first
    depth = 0
    for found in _TOKEN.finditer(body):
        token = found.group().lower()
        depth += (token == "(") - (token == ")")
        if not depth and token in _MAIN:
            return token
    return first


def execute(statement: str, db: str) -> dict[str, Any]:
    """Runs one SQL statement on a database, and SHOW TABLES and DESCRIBE as MySQL knows them. It cannot change data.

    Gives the kind of the statement (select, show, describe, submit), and the first rows. `submit` hands the last
    query in and runs nothing. Raises ValueError for what cannot be run.
    """
    kind = keyword(statement)
    if kind == "submit":
        return {"statement": "submit"}
    if kind in ("show", "desc", "describe"):
        rows = _schema(statement, db)
        return {"statement": "describe" if kind == "desc" else kind, "rows": rows}
    if kind not in ("select", "values"):
        raise ValueError(f"this is no query: {statement.strip()[:80]!r}; write one that begins with SELECT or WITH")
    rows = query(statement, db)
    more = {"more_rows": len(rows) - ROWS} if len(rows) > ROWS else {}
    return {"statement": "select", "rows": [list(map(_shown, row)) for row in rows[:ROWS]], **more}


def told(statement: str, db: str) -> str:
    """Runs a statement as `execute` does, and tells in words what came of it, errors too."""
    try:
        return str(execute(statement, db))
    except ValueError as error:
        return f"error: {error}"


def schema(db: str) -> str:
    """The tables of a database with their columns, a table a line: `books(book_id INTEGER, title TEXT)`."""
    tables = [table for (table,) in _schema("SHOW TABLES", db)]
    columns = {table: _schema(f"DESCRIBE {table}", db) for table in tables}
    return "\n".join(f"{t}({', '.join(f'{name} {kind}' for name, kind, _ in found)})" for t, found in columns.items())


def score(example: Any, prediction: Any) -> tuple[float, str]:
    """1 if the predicted query gives the rows of the gold query, else 0: any order, unless the gold query orders."""
    gold = query(example["gold_sql"], example["db"])
    try:
        rows = query(str(prediction.get("sql", "")), example["db"])
    except ValueError as error:
        return 0.0, f"the query fails: {error}"
    if same_rows(rows, gold, ordered=re.search(r"(?i)\border\s+by\b", example["gold_sql"]) is not None):
        return 1.0, "the query gives the right rows"
    return 0.0, f"the query gives {len(rows)} rows that differ from the {len(gold)} right ones"


def same_rows(rows: list[tuple[Any, ...]], gold: list[tuple[Any, ...]], ordered: bool) -> bool:
    """Whether two results are equal: as lists, or as multisets. Numbers are compared to six digits."""
    here, there = ([tuple(map(_plain, row)) for row in part] for part in (rows, gold))
    return here == there if ordered else Counter(here) == Counter(there)


def query(statement: str, db: str) -> list[tuple[Any, ...]]:
    """The rows of a query, at most 100,000 of them. Raises ValueError if it fails, writes, or takes too long."""
    with Database.make(_script(db), reads=True) as database:
        return database.run(statement, most=MAX)


@lru_cache(maxsize=64)
def _script(name: str) -> str:
    """The script that makes a database. Raises ValueError for an unknown name."""
    if not re.fullmatch(r"\w+", name):
        raise ValueError(f"there is no database {name!r}")
    path = next((p for folder in FOLDERS if (p := folder / f"{name}.sql").is_file()), None)
    if path is None:
        raise ValueError(f"there is no database {name!r}")
    return path.read_text(encoding="utf-8")


def _schema(statement: str, db: str) -> list[list[Any]]:
    """The tables, or the columns of the table that is named last: name, type, and whether it is in the key."""
    with Database.make(_script(db), reads=True) as database:
        tables = [str(name) for (name,) in database.run("select name from sqlite_master where type = 'table'")]
        words = [w.lower() for w in re.findall(r"\w+", statement)]
        if words[:2] == ["show", "tables"]:
            return [[table] for table in tables]
        named = next((t for t in tables if t.lower() in words[1:]), None)
        if named is None:
            raise ValueError(f"no such table; tables: {', '.join(tables)}")
        return [[name, kind, bool(key)] for name, kind, key in database.columns(named)]


def _shown(value: Any) -> Any:
    return repr(value) if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, int | float) else value

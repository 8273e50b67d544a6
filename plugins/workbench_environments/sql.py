"""A SQLite database that statements may change; every episode begins with a fresh copy.

For questions that only read, workflows/intercode_sql.py has a tool that runs queries, and its own metric.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import lru_cache, partial
from itertools import islice
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr

from workbench.kit.environment import Environment, Step

MOST = 10_000  # rows of a result
WORK = 20_000_000  # steps of SQLite's machine a statement; a clock would make episodes differ
VALUE = 1_000_000  # bytes of a text, a blob or a row that a statement makes
#: Steps times the length of the longest value: what a statement that puts rows aside (to sort, group or compare them)
#: can hold at once, in memory and in temporary files, and what any other can work through.
HELD, MADE = 200 * WORK, 12_800 * WORK
RESULT = 10_000_000  # bytes of a result
PATTERN = 1_000  # bytes of a pattern of LIKE and GLOB
PAGES = 16_384  # of a database: 64 MB at SQLite's own page size
_DENIED = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA}
_DRAWS = {"random", "randomblob"}  # a database that is put back must be the same one
NOW = "2024-01-01 00:00:00"  # what the time is, always: a statement that is run again must give the same
#: SQLite's functions of time, and how many arguments come before the time itself.
_CLOCKS = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1}


class Sql(Environment):
    """A database that SQL statements read and change. `submit` ends the episode.

    Task: `db`, the name of a script NAME.sql in `folder`, or `schema`, the script itself; and `gold_sql`. If that is a
    query, the last query must return its rows (in any order, unless it orders); if not, the database must end as it
    would after that statement.
    """

    help: ClassVar[str] = "one SQL statement, or submit to hand in what the last query gave and how the database is"

    folder: str = Field(".", description="where the scripts of databases are, relative to the workflow file")
    rows: int = Field(20, ge=1, le=1000, description="so many rows of a result are shown")
    limit: int = Field(20, ge=1, le=1000, description="statements at most")
    chars: int = Field(4000, ge=100, le=100_000, description="characters of an observation at most")
    _script: str = PrivateAttr("")
    _gold: str = PrivateAttr("")
    _connection: sqlite3.Connection | None = PrivateAttr(None)

    def reset(self, task: Mapping[str, Any]) -> str:
        self._script, self._gold = self._source(task), str(task.get("gold_sql") or "").strip()
        if not self._gold:
            raise ValueError("the field 'gold_sql' must hold the statement whose result or effect is wanted")
        self.state = {"changes": [], "last": None, "steps": 0}
        self._open([])
        tables = _run(self._db, "select name, sql from sqlite_master where type = 'table' order by name")
        return "\n".join(["Tables:", *(str(sql) for _, sql in tables)])

    def _source(self, task: Mapping[str, Any]) -> str:
        if task.get("schema"):
            return str(task["schema"])
        name = str(task.get("db") or "")
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"the field 'db' must name a database, not {name!r}")
        path = (self.base / self.folder / f"{name}.sql").resolve()
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        return path.read_text(encoding="utf-8")

    def restore(self, snapshot: Any) -> None:
        super().restore(snapshot)
        self._open(self.state["changes"])

    def step(self, action: str) -> Step:
        state, statement = self.state, _statement(action)
        state["steps"] += 1
        over = state["steps"] >= self.limit
        if statement.lower() == "submit":
            return Step("Handed in.", True)
        before = self._changes
        try:
            found = _run(self._db, statement)
        except ValueError as error:
            self._open(state["changes"])  # it may have changed something, or taken a transaction back
            return Step(self._cut(f"error: {error}"), over)
        if self._changes != before or not _reads(statement):
            state["changes"].append(statement)
            return Step(f"done, {self._changes - before} rows changed", over)
        state["last"] = statement
        more = f"\n... and {len(found) - self.rows} more rows" if len(found) > self.rows else ""
        return Step(self._cut("\n".join(map(repr, found[: self.rows]))) + more or "no rows", over)

    @classmethod
    def call(cls, action: str) -> Mapping[str, Any]:
        """The statement without fence and what SQLite skips before it, and its first word."""
        statement = _bare(_statement(action))
        return {"action": statement, "verb": (re.findall(r"\A\w+", statement) or [""])[0].lower()}

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.chars else text[: self.chars - 1] + "…"

    def score(self) -> float:
        """1 if the last query gives what the gold query gives, or the database is as the gold statement makes it."""
        if _reads(self._gold):
            with _opened(self._script) as fresh:  # as it was given: emptying the tables must not make all equal
                try:
                    found = None if self.state["last"] is None else _run(fresh, self.state["last"])
                except ValueError:  # it reads what an earlier statement made
                    found = None
                gold = _run(fresh, self._gold)
            if found is None:
                return 0.0
            ordered = re.search(r"(?i)\border\s+by\b", self._gold) is not None
            same = found == gold if ordered else sorted(map(repr, found)) == sorted(map(repr, gold))
            return float(same)
        with _opened(self._script) as wanted:
            _run(wanted, self._gold)
            return float(list(wanted.iterdump()) == list(self._db.iterdump()))

    def identity(self) -> Any:
        return [self.state["changes"], self.state["last"]]

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._connection is not None, "reset comes first"
        return self._connection

    @property
    def _changes(self) -> int:
        return self._db.total_changes

    def _open(self, changes: list[str]) -> None:
        self.close()
        self._connection = _opened(self._script)
        for statement in changes:
            _run(self._db, statement)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _statement(action: str) -> str:
    """The statement without a fence around it, and without a semicolon."""
    fenced = re.search(r"```[\w-]*\n(.*?)(?:```|\Z)", action, re.DOTALL)
    return (fenced.group(1) if fenced else action).strip().rstrip(";").strip()


def _bare(statement: str) -> str:
    """A statement without what SQLite skips before it: blanks, semicolons, comments."""
    return re.sub(r"\A(?s:[\s;\ufeff]+|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))*", "", statement)


def _reads(statement: str) -> bool:
    return re.match(r"(?is)\s*(select|values|with|explain)\b", statement) is not None


@lru_cache(maxsize=64)
def _made(script: str) -> bytes:
    connection = _clocked(sqlite3.connect(":memory:"))
    try:
        connection.executescript(script)
        return connection.serialize()
    finally:
        connection.close()


def _at(name: str, before: int, *values: Any) -> Any:
    """What a function of time gives, with NOW in place of the present, written or left out."""
    values = values if len(values) > before else (*values, "now")
    values = tuple(NOW if isinstance(v, str) and v.lower() == "now" else v for v in values)
    with closing(sqlite3.connect(":memory:")) as plain:
        return plain.execute(f"select {name}({', '.join('?' * len(values))})", values).fetchone()[0]


def _instr(text: Any, part: Any) -> int | None:
    """SQLite's own takes the product of the lengths, within one step of its machine, so that counting steps bounds
    nothing."""
    if text is None or part is None:
        return None
    if not (isinstance(text, bytes) and isinstance(part, bytes)):
        text, part = _as_text(text), _as_text(part)
    return text.find(part) + 1


def _replace(text: Any, old: Any, new: Any) -> Any:
    """As `_instr`: SQLite's result in a time that grows with the lengths, not with their product."""
    if text is None or old is None or new is None:
        return None
    text, old, new = _as_text(text), _as_text(old), _as_text(new)
    if not old:
        return text
    if len(text) + text.count(old) * len(new) > VALUE:
        raise ValueError("string or blob too big")
    return text.replace(old, new)


def _as_text(value: Any) -> str:
    """As SQLite casts a value to text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else str(value)


def _clocked(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The connection with a clock that stands still, and with functions whose work is bounded."""
    connection.create_function("instr", 2, _instr, deterministic=True)
    connection.create_function("replace", 3, _replace, deterministic=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN)
    for name, before in _CLOCKS.items():
        connection.create_function(name, -1, partial(_at, name, before), deterministic=True)
    for name, value in (("current_timestamp", NOW), ("current_date", NOW[:10]), ("current_time", NOW[11:])):
        connection.create_function(name, 0, lambda value=value: value, deterministic=True)
    return connection


def _run(connection: sqlite3.Connection, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a statement. Raises ValueError if it fails, reaches for files, draws at random, or takes too much.

    SQLite bounds neither what a sorter holds nor how long work with large values takes, only steps and the length of a
    value. So their product is bounded: a statement has all steps while values are short; if one is longer, it begins
    anew with a quarter of them for values four times as long. This gives the same on every machine, as a clock or a
    look at memory would not.
    """
    longest = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE)
    connection.set_authorizer(_allowed)
    product = length = WORK
    try:
        product = HELD if _puts_aside(connection, statement) else MADE
        length = product // WORK
        while True:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(length, VALUE))
            try:
                return _within(connection, statement, product // length)
            except sqlite3.DataError as error:
                if length >= VALUE or "too big" not in str(error):
                    raise
                length *= 4
    except (sqlite3.Error, sqlite3.Warning) as error:
        words = str(error).replace("not authorized", "that is not allowed here")
        if words == "interrupted" and length > product // WORK:
            words = "it works through too many large values at once; ask for fewer or shorter rows"
        raise ValueError("it takes too long" if words == "interrupted" else words) from None
    finally:
        connection.set_authorizer(None)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)  # a dump writes a blob in twice its bytes


def _within(connection: sqlite3.Connection, statement: str, steps: int) -> list[tuple[Any, ...]]:
    """The rows of a statement. Raises sqlite3.OperationalError("interrupted") if it takes more steps."""
    often = 200
    left = iter(range(often))
    connection.set_progress_handler(lambda: next(left, None) is None, max(1, steps // often))
    try:
        with closing(connection.execute(statement)) as rows:
            return _fetched(rows)
    finally:
        connection.set_progress_handler(None, 0)


def _puts_aside(connection: sqlite3.Connection, statement: str) -> bool:
    """Whether SQLite runs it with a sorter or a table of its own. Raises what is wrong with the statement."""
    statement = _bare(statement)
    if re.match(r"(?i)explain\b", statement):
        return False
    with closing(connection.execute(f"explain {statement}")) as rows:
        return any(row[1] in ("SorterOpen", "OpenEphemeral", "OpenAutoindex") for row in rows)


def _allowed(action: int, _table: str | None, name: str | None, *_: str | None) -> int:
    draws = action == sqlite3.SQLITE_FUNCTION and name in _DRAWS
    return sqlite3.SQLITE_DENY if draws or action in _DENIED else sqlite3.SQLITE_OK


def _fetched(rows: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    """The first rows. Raises ValueError where they are too many bytes."""
    found: list[tuple[Any, ...]] = []
    left = RESULT
    for row in islice(rows, MOST):
        left -= sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if left < 0:
            raise ValueError(f"the result has more than {RESULT} bytes; ask for fewer rows or columns")
        found.append(row)
    return found


class _Closing(sqlite3.Connection):
    def __exit__(self, *_: Any) -> Any:
        self.close()


def _opened(script: str) -> sqlite3.Connection:
    """A copy of the database in memory, closed at the end of a `with`."""
    connection = _clocked(sqlite3.connect(":memory:", isolation_level=None, factory=_Closing))
    connection.deserialize(_made(script))
    for schema in ("main", "temp"):
        connection.execute(f"pragma {schema}.max_page_count = {PAGES}")
    return connection

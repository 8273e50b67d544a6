"""The process that runs untrusted SQL: statements of a language model, scripts from rows of data.

    python -P -s -S -B sql_process.py FD CONFINE

It receives sockets over the socket FD and forks a child for each. The child gives up files, network and processes (see
confine.py), opens a database in memory, and answers requests (see `SqlSession`) until its socket closes. So a statement
that crashes SQLite crashes only its own child, and data left in memory reaches no other session.

Statements are limited by allowlists: actions of SQLite's authorizer, functions by name, steps, lengths of values,
pages. Time is fixed and nothing is random, so the same statements always give the same result. `confined_sql` is the
other side.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

MEMORY = 1 << 30  # bytes of a session
PROCESSOR = 120  # seconds of processor time of a session; counted steps end statements long before
LONGEST = 600  # seconds of a session

WORK = 20_000_000  # virtual machine steps of a statement; a time limit would make episodes differ
COUNTED = 100  # unit in which these steps are counted
SCRIPT_WORK = 20 * WORK  # steps of a database's script
VALUE = 1_000_000  # bytes of a text, blob or row that a statement makes
#: Steps times the length of the longest value. It bounds the memory of a statement that buffers rows (to sort, group or
#: compare them), and the work of any other.
HELD, MADE = 200 * WORK, 12_800 * WORK
RESULT = 10_000_000  # bytes of a result
PATTERN = 1_000  # bytes of a pattern of LIKE and GLOB
PAGES = 16_384  # of a database: 64 MB at SQLite's own page size

NOW = "2024-01-01 00:00:00"  # the fixed time: a repeated statement must give the same result
#: SQLite's functions of time, with the number of arguments before the time itself.
_CLOCKS = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1, "timediff": 2}

#: Actions of the authorizer by number, since Python does not name all of them, and the verb that a policy sees.
READS = {20: None, 21: "select", 31: None, 33: None}  # READ, SELECT, FUNCTION, RECURSIVE
WRITES = {
    **dict.fromkeys(range(1, 9), "create"),  # index, table, their temporary kinds, triggers, views
    9: "delete",
    **dict.fromkeys(range(10, 18), "drop"),
    18: "insert",
    22: "transaction",
    23: "update",
    26: "alter",
    27: "reindex",
    28: "analyze",
    32: "savepoint",
}
_READ, _FUNCTION, _PRAGMA = 20, 31, 19
SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema"})
VIRTUAL = frozenset({"dbstat", "sqlite_dbpage", "sqlite_dbdata", "sqlite_dbptr", "sqlite_stmt", "fts3tokenize"})

#: Functions that a statement may use. Excluded: fts3_tokenizer, which accepts and returns pointers; load_extension;
#: random and randomblob; information about the library itself.
FUNCTIONS = frozenset(
    """
    abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling changes char coalesce concat concat_ws cos cosh count
    cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp first_value floor format
    glob group_concat hex if ifnull iif instr json json_array json_array_length json_each json_error_position
    json_extract json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote
    json_remove json_replace json_set json_tree json_type json_valid julianday lag last_insert_rowid last_value lead
    length like likelihood likely ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif octet_length
    percent_rank percentile percentile_cont percentile_disc pi pow power printf quote radians rank replace round
    row_number rtrim sign sin sinh sqrt strftime string_agg substr substring sum tan tanh time timediff total
    total_changes trim trunc typeof unhex unicode unistr unistr_quote unixepoch unlikely upper zeroblob -> ->>
    sqlite_rename_column sqlite_rename_table sqlite_rename_test sqlite_rename_quotefix sqlite_drop_column
    """.split()
)  # SQLite uses the last ones for ALTER TABLE; statements cannot call them


class SqlSession:
    """A database in memory, and requests about it: JSON objects, each answered by one, with `error` if it fails.

    {"do": "make"}, then a script: returns the bytes of the database. {"do": "open", "reads": bool}, then such bytes.
    {"do": "run", "statement": ..., "most": N}: rows, all changes so far, its steps. {"do": "verbs", "statement": ...}:
    its actions. {"do": "columns", "table": ...}. {"do": "digest"}: a hash of the whole database.
    """

    def __init__(self, fd: int) -> None:
        self.connection = Connection(fd)  # by read and write: the child may not use sockets' own calls
        self.allowed: dict[int, str | None] = {**READS, **WRITES}
        self.verbs, self.steps = set[str](), 0  # of the last statement
        self.database = self._empty()

    def serve(self) -> None:
        with suppress(EOFError):
            while True:
                body = json.loads(self.connection.recv_bytes())
                try:
                    answer, more = getattr(self, f"do_{body.pop('do')}")(**body)
                except (ValueError, sqlite3.Error, sqlite3.Warning, MemoryError, RecursionError) as error:
                    answer, more = {"error": in_words(error)}, None
                self.connection.send_bytes(json.dumps(answer).encode())
                if more is not None:
                    self.connection.send_bytes(more)

    def do_make(self) -> tuple[dict[str, Any], bytes]:
        script = self.connection.recv_bytes().decode()
        with self._held(SCRIPT_WORK, pragma=sqlite3.SQLITE_IGNORE):  # dumps begin with `pragma foreign_keys = off`
            self.database.executescript(script)
        if self.database.in_transaction:
            self.database.commit()
        return {}, self.database.serialize()

    def do_open(self, reads: bool) -> tuple[dict[str, Any], None]:
        self.database.deserialize(self.connection.recv_bytes())
        self.database = self._bounded(self.database)
        self.allowed = dict(READS) if reads else self.allowed
        return {}, None

    def do_run(self, statement: str, most: int) -> tuple[dict[str, Any], None]:
        rows = [[_to_json(value) for value in row] for row in self._run(statement, most)]
        return {"rows": rows, "changes": self.database.total_changes, "steps": self.steps}, None

    def do_verbs(self, statement: str) -> tuple[dict[str, Any], None]:
        self.verbs = set()
        with self._held(WORK), suppress(sqlite3.Error, sqlite3.Warning):
            with closing(self.database.execute(f"explain {bare(statement)}")) as steps:
                deletes = any(step[1] == "Delete" for step in steps)
            if self.verbs & {"insert", "update"} and self._may_replace(statement, deletes):
                self.verbs.add("delete")  # REPLACE deletes rows that conflict
        return {"verbs": sorted(self.verbs)}, None

    def _may_replace(self, statement: str, deletes: bool) -> bool:
        """Return True if a conflict may delete rows: by the statement, or by a constraint of a table. deletes: whether
        the program of the statement deletes; an update deletes a row to write it again."""
        replace = re.compile(r"(?i)\breplace\b(?!\s*\()")
        if replace.search(statement) or (deletes and "update" not in self.verbs):
            return True
        schema = self.database.execute("select sql from sqlite_master where sql is not null").fetchall()
        return any(replace.search(sql) for (sql,) in schema)

    def do_columns(self, table: str) -> tuple[dict[str, Any], None]:
        rows = self.database.execute("select name, type, pk from pragma_table_info(?)", (table,)).fetchall()
        return {"columns": rows}, None

    def do_digest(self) -> tuple[dict[str, Any], None]:
        found = hashlib.sha256()
        for line in self.database.iterdump():
            found.update(line.encode("utf-8", "surrogatepass") + b"\n")
        return {"digest": found.hexdigest()}, None

    def _empty(self) -> sqlite3.Connection:
        return self._bounded(with_own_functions(sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)))

    def _bounded(self, database: sqlite3.Connection) -> sqlite3.Connection:
        database.execute("pragma temp_store = memory")
        for schema in ("main", "temp"):
            database.execute(f"pragma {schema}.max_page_count = {PAGES}")
        return database

    def _authorize(self, pragma: int, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == _PRAGMA:
            return pragma
        if action == _FUNCTION and second not in FUNCTIONS:
            return sqlite3.SQLITE_DENY
        if action not in self.allowed or (action == _READ and first in VIRTUAL):
            return sqlite3.SQLITE_DENY
        if (verb := self.allowed[action]) and first not in SCHEMA_TABLES:  # their rows change with every table
            self.verbs.add(verb)
        return sqlite3.SQLITE_OK

    @contextmanager
    def _held(self, steps: int, pragma: int = sqlite3.SQLITE_DENY) -> Iterator[None]:
        """Run the block with the authorizer and at most `steps` steps."""
        left = iter(range(often := max(1, steps // COUNTED)))
        self.database.set_authorizer(partial(self._authorize, pragma))
        self.database.set_progress_handler(lambda: next(left, None) is None, COUNTED)
        longest = self.database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE)
        try:
            yield
        finally:
            self.steps = next(left, often) * COUNTED
            self.database.set_progress_handler(None, 0)
            self.database.set_authorizer(None)
            self.database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)  # a dump writes a blob in twice its bytes

    def _run(self, statement: str, most: int) -> list[tuple[Any, ...]]:
        """Return the rows of a statement. Raises ValueError and SQLite's errors.

        SQLite bounds steps and the length of a value, not a sorter's memory or the time for large values. So their
        product is bounded: a statement gets all steps while values are short; if one is longer, it restarts with a
        quarter of the steps and values four times as long. Unlike a clock, this gives the same on every machine.
        """
        with self._held(WORK):
            product = HELD if self._puts_aside(statement) else MADE
        length = product // WORK
        while True:
            try:
                with self._held(product // length):
                    self.database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(length, VALUE))
                    with closing(self.database.execute(statement)) as rows:
                        return fetched(rows, most)
            except sqlite3.DataError as error:
                if length >= VALUE or "too big" not in str(error):
                    raise
                length *= 4
            except sqlite3.OperationalError as error:
                if str(error) != "interrupted" or length <= product // WORK:
                    raise
                words = "it works through too many large values at once; ask for fewer or shorter rows"
                raise ValueError(words) from None

    def _puts_aside(self, statement: str) -> bool:
        """Return True if SQLite runs a statement with a sorter or a temporary table. Raises the statement's errors."""
        statement = bare(statement)
        if re.match(r"(?i)explain\b", statement):
            return False
        with closing(self.database.execute(f"explain {statement}")) as rows:
            return any(row[1] in ("SorterOpen", "OpenEphemeral", "OpenAutoindex") for row in rows)


def in_words(error: BaseException) -> str:
    """Return the message of an error for the caller."""
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    words = str(error) or type(error).__name__
    if words == "interrupted":
        return "it takes too long"
    if words == "user-defined function raised exception":
        return "string or blob too big, or an argument of a wrong kind"
    words = re.sub("(not authorized to use|access to) ", "that is not allowed here: ", words)
    return re.sub("not authorized|authorization denied|is prohibited", "that is not allowed here", words)


def bare(statement: str) -> str:
    """Strip blanks, semicolons and comments from the beginning of a statement."""
    return re.sub(r"\A(?s:[\s;\ufeff]+|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))*", "", statement)


def fetched(rows: sqlite3.Cursor, most: int) -> list[tuple[Any, ...]]:
    """Return the first rows. Raises ValueError if they exceed RESULT bytes."""
    found: list[tuple[Any, ...]] = []
    left = RESULT
    for row in islice(rows, most):
        left -= sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if left < 0:
            raise ValueError(f"the result has more than {RESULT} bytes; ask for fewer rows or columns")
        found.append(row)
    return found


def _to_json(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def with_own_functions(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Install a fixed clock, and string functions in linear time; returns the connection. The time of SQLite's own
    functions grows with the product of their arguments' lengths, or with a given width, in one step of its machine, so
    counting steps would not bound them."""
    own: list[tuple[str, int, Callable[..., Any]]] = [("instr", 2, _instr), ("replace", 3, _replace)]
    for name, ends in (("trim", (True, True)), ("ltrim", (True, False)), ("rtrim", (False, True))):
        own += [(name, count, partial(_trim, ends)) for count in (1, 2)]
    own += [(name, -1, _format) for name in ("printf", "format")]
    own += [(name, -1, partial(_at, name, before)) for name, before in _CLOCKS.items()]
    for name, value in (("current_timestamp", NOW), ("current_date", NOW[:10]), ("current_time", NOW[11:])):
        own.append((name, 0, partial(str, value)))
    for name, count, function in own:
        connection.create_function(name, count, function, deterministic=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN)
    return connection


def _at(name: str, before: int, *values: Any) -> Any:
    """Return the result of a function of time, with NOW for the present, whether named or omitted."""
    values = values if len(values) > before else (*values, "now")
    values = tuple(NOW if isinstance(v, str) and v.lower() == "now" else v for v in values)
    return _plain().execute(f"select {name}({', '.join('?' * len(values))})", values).fetchone()[0]


#: A conversion of printf with its width and precision: SQLite, "Built-in printf()".
_CONVERSION = re.compile(r"%%|%[-+ 0#,!]*(\*|\d*)(?:\.(\*|\d*))?")


def _format(form: Any = None, *values: Any) -> str | None:
    """Run printf. Raises ValueError if widths and precisions add up to more than VALUE characters, or are `*`."""
    sizes = [size for found in _CONVERSION.findall(_as_text("" if form is None else form)) for size in found]
    if "*" in sizes or sum(int(size or 0) for size in sizes) > VALUE:
        raise ValueError("string or blob too big")
    return _plain().execute(f"select printf({', '.join('?' * (len(values) + 1))})", (form, *values)).fetchone()[0]


@lru_cache(maxsize=1)
def _plain() -> sqlite3.Connection:
    return sqlite3.connect(":memory:")


def _instr(text: Any, part: Any) -> int | None:
    if text is None or part is None:
        return None
    if not (isinstance(text, bytes) and isinstance(part, bytes)):
        text, part = _as_text(text), _as_text(part)
    return text.find(part) + 1


def _replace(text: Any, old: Any, new: Any) -> Any:
    if text is None or old is None or new is None:
        return None
    text, old, new = _as_text(text), _as_text(old), _as_text(new)
    if old and len(text) + text.count(old) * len(new) > VALUE:
        raise ValueError("string or blob too big")
    return text.replace(old, new) if old else text


def _trim(ends: tuple[bool, bool], text: Any, characters: Any = " ") -> str | None:
    if text is None or characters is None:
        return None
    text, unwanted = _as_text(text), _as_text(characters)
    text = text.lstrip(unwanted) if ends[0] else text
    return text.rstrip(unwanted) if ends[1] else text


def _as_text(value: Any) -> str:
    """Return a value as text, cast as SQLite does."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else str(value)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    confine = _load(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGCHLD):  # the workbench handles Ctrl-C; children are not waited for
        signal.signal(number, signal.SIG_IGN)
    with closing(with_own_functions(sqlite3.connect(":memory:"))) as warm:  # SQLite and codecs are ready in every child
        list(warm.iterdump())
        warm.execute("select date('now'), random()").fetchone()
    control.sendall(b"r")
    while True:
        _, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not fds:
            return
        if os.fork() == 0:
            try:
                control.close()
                _confined(confine)
                SqlSession(fds[0]).serve()
            finally:
                os._exit(0)
        os.close(fds[0])


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("confine", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _confined(confine: ModuleType) -> None:
    signal.alarm(LONGEST)
    if sys.platform == "linux":
        confine.die_with_parent()
    confine.drop_rights([], memory=MEMORY, processor=PROCESSOR)


if __name__ == "__main__":
    main()

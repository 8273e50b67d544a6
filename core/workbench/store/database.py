"""The run database: one SQLite file, through sqlite-utils, with a documented and migrated schema.

An answer is committed before any caller sees it: `write` queues a row, and each turn of the event loop commits what it
queued. A committed row survives the death of the process. The commit does not wait for the disk (synchronous=NORMAL): a
thread calls fsync at most `SYNC_EVERY` seconds later, so a power loss can lose the last moment, but never corrupts the
database.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from workbench.base.files import check_database_files, make_private
from workbench.base.text import one_line
from workbench.errors import StoreError
from workbench.store.background_sync import BackgroundSync
from workbench.store.content import parse_json, text_key
from workbench.store.schema import SCHEMA, SCHEMA_VERSION, check_version, make_migrations

T = TypeVar("T")


def typed(command: str, database: str | Path) -> str:
    """Return a command about a run as the user can type it: with its database, unless that is the default here."""
    default = str(database) == os.environ.get("WORKBENCH_DB", "workbench.db")
    return command if default else f"{command} --db {one_line(shlex.quote(str(database)))}"


#: A path for a database in memory that ends with its Store.
IN_MEMORY = ":memory:"

#: The tables with their contents.
TABLES = {
    "runs": "one row for each run: of `workbench optimize`, `eval`, `run`, `predict` and of plugins",
    "candidates": "workflows that were proposed: tree, parent and patch",
    "evaluations": "one row for each (candidate, split, replica) that was scored; without n and score while its rows "
    "are scored a few at a time",
    "results": "one row for each example of an evaluation: score, failure, feedback, prediction, spans, cost; of "
    "`workbench eval` also the row itself",
    "calls": "every LM call and tool effect that was settled, under its content key",
    "attempts": "requests that failed, are in flight, or whose outcome is unknown because the process was killed",
    "texts": "large texts once, by hash",
    "events": "what happened, in order",
    "artifacts": "files that a run wrote",
    "orders": "what users ordered of a run that went on, and what became of it",
    "sealed_tests": "tests of a changed workflow on sealed rows, and what `workbench eval` scored",
    "sealed_test_rows": "the rows of each such test, by a hash of their inputs",
    "seen_rows": "the texts of rows that were scored, by the same hash: near copies are known by them",
    "scored_rows": "the rows of train and val that a run scored candidates on",
    "scored_candidates": "these candidates",
}

#: Kinds of runs that `workbench runs list` shows.
LISTED = ("optimize", "eval")

#: The status of a removed run. Its row stays, since its tests on sealed rows still count.
REMOVED = "removed"

#: Seconds from a commit to the fsync that protects it from a power loss.
SYNC_EVERY = 0.1

#: Seconds to wait for another process that holds the write lock, and between two attempts.
PATIENCE, POLL_EVERY = 10.0, 0.01


class Store:
    """The database of runs. One process writes; any number may read at the same time (WAL)."""

    def __init__(self, path: str | Path, *, create: bool = True):
        self.path = Path(path)
        if not create and not self.path.exists():
            raise StoreError(f"there is no run database at {self.path}; name another with --db")
        self._pending: list[tuple[str, tuple[Any, ...]]] = []
        self._batch: asyncio.Future[None] | None = None
        self._waiting_since: float | None = None  # since another process has been writing
        self._sync = BackgroundSync(self.path.with_name(f"{self.path.name}-wal"), SYNC_EVERY)
        self._known_texts: dict[str, None] = {}
        try:
            if path == IN_MEMORY:
                self.conn = self._reader = self._connect()
                self.conn.executescript(SCHEMA)  # the migrations of files import a package for 0.2 s
                return
            if not self.path.parent.is_dir():
                raise StoreError(
                    f"there is no folder {self.path.parent} for the run database; make it, or use another --db"
                )
            check_database_files(self.path)
            with _creation_lock(self.path.parent):
                make_private(self.path)
                self.conn = self._connect()
                self._prepare()
            self.conn.execute("pragma busy_timeout=0")  # SQLite's own waiting would block the event loop
            self._reader = self._connect()
        except (sqlite3.Error, OSError, UnicodeError) as error:  # UnicodeError: SQLite quotes damaged content
            raise StoreError(f"cannot use the run database {self.path}: {join_lines(error)}{_advice(error)}") from error

    def _connect(self) -> sqlite3.Connection:
        conn = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
        conn.row_factory = sqlite3.Row
        for pragma in ("trusted_schema=off", "synchronous=normal", "foreign_keys=on", "busy_timeout=10000"):
            conn.execute(f"pragma {pragma}")
        return conn

    def _prepare(self) -> None:
        import sqlite_utils

        version = check_version(self.conn, self.path)
        self.conn.execute("pragma journal_mode=wal")  # permanent, so only after the file is known to be ours
        if version < SCHEMA_VERSION:
            if self.conn.execute("select count(*) from sqlite_master").fetchone()[0]:
                self._keep_copy()
            make_migrations().apply(sqlite_utils.Database(self.conn))
            self.conn.execute(f"pragma user_version={SCHEMA_VERSION}")

    def _keep_copy(self) -> None:
        """Copy an older database to a file next to it before an upgrade. An existing copy is not replaced."""
        kept = self.path.with_name(f"{self.path.name}.before-schema{SCHEMA_VERSION}")
        if not kept.exists():
            part = kept.with_name(f".{kept.name}.{os.getpid()}.part")
            part.unlink(missing_ok=True)
            make_private(part)
            with closing(sqlite3.connect(part)) as copy:
                self.conn.backup(copy)
            os.replace(part, kept)

    # Writing

    def write(self, sql: str, *values: Any) -> asyncio.Future[None]:
        """Queue one row. The future is done when it is committed. An error is set on all futures of the same commit."""
        loop = asyncio.get_running_loop()
        if self._batch is not None and self._batch.get_loop() is not loop:
            self.flush()  # rows queued in an event loop that has ended
        if self._batch is None:
            self._batch = loop.create_future()
            loop.call_soon(self._commit_queued)
        self._pending.append((sql, values))
        return self._batch

    def _commit_queued(self) -> None:
        """Commit the rows queued in this turn of the loop. If another process holds the write lock, try again later."""
        if self._batch is None:
            return  # flushed in the meantime
        try:
            self._commit(self._pending)
        except Exception as error:
            if self._may_retry(error):
                self._batch.get_loop().call_later(POLL_EVERY, self._commit_queued)
            else:
                self._resolve_batch(self._failure(error))
        else:
            self._resolve_batch(None)

    def _resolve_batch(self, error: StoreError | None) -> None:
        """Clear the queue and set the result of its commit on the future that callers await."""
        batch, self._batch, self._pending, self._waiting_since = self._batch, None, [], None
        if batch is None or batch.done() or batch.get_loop().is_closed():
            return
        if error is None:
            batch.set_result(None)
        else:
            batch.set_exception(error)
            batch.exception()  # mark it as retrieved: an error that nobody awaits is not reported again

    def _commit(self, rows: list[tuple[str, tuple[Any, ...]]]) -> None:
        """Commit all rows in order, or none. Raises sqlite3.Error, StoreError, and the errors of unsupported values."""
        self._check_disk()
        if not rows:
            return
        try:
            self._insert(rows)
        except UnicodeEncodeError:  # a lone surrogate in external text, e.g. an error message
            self._insert(
                [(sql, tuple(_storable(v) if isinstance(v, str) else v for v in values)) for sql, values in rows]
            )
        self._sync.written()

    def _insert(self, rows: list[tuple[str, tuple[Any, ...]]]) -> None:
        if len(rows) == 1:  # a transaction by itself
            self.conn.execute(*rows[0])
            return
        try:
            self.conn.execute("begin immediate")
            for sql, group in itertools.groupby(rows, key=lambda row: row[0]):
                self.conn.executemany(sql, [values for _, values in group])
            self.conn.execute("commit")
        except BaseException:  # interrupts included: leave no transaction open
            if self.conn.in_transaction:
                self.conn.execute("rollback")
            raise

    def _check_disk(self) -> None:
        """Raise StoreError once if an earlier commit could not be synced to disk."""
        if (error := self._sync.error) is not None:
            self._sync.error = None
            raise StoreError(
                f"cannot sync {self._sync.path} to disk: {error}; a loss of power may now take what was "
                "recorded last; free some space on that disk or use another, then continue with workbench resume"
            )

    def _may_retry(self, error: Exception) -> bool:
        """Return True if another process has held the write lock for less than PATIENCE seconds."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:  # the lower byte is the primary code
            return False
        self._waiting_since = self._waiting_since or time.monotonic()
        return time.monotonic() - self._waiting_since < PATIENCE

    def _retry_while_busy(self, work: Callable[[], T]) -> T:
        while True:
            try:
                found = work()
                self._waiting_since = None
                return found
            except Exception as error:
                if not self._may_retry(error):
                    self._waiting_since = None
                    raise self._failure(error) from error
                time.sleep(POLL_EVERY)

    def _failure(self, error: Exception) -> StoreError:
        self._known_texts.clear()  # some may have been rolled back
        if isinstance(error, StoreError):
            return error
        return StoreError(
            f"cannot write to {self.path}: {join_lines(error)}; what was recorded before is safe{_advice(error)}"
        )

    def flush(self) -> None:
        """Commit all queued rows now."""
        try:
            self._retry_while_busy(lambda: self._commit(self._pending))
        except StoreError as error:
            self._resolve_batch(error)
            raise
        self._resolve_batch(None)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Run one statement and commit it immediately, after all queued rows."""
        self.flush()
        cursor = self._retry_while_busy(lambda: self.conn.execute(sql, values))
        self._sync.written()
        return cursor

    def text(self, text: str) -> str:
        """Store a large text once and return its hash. The row joins the next batch."""
        key = text_key(text)
        if key not in self._known_texts:
            if len(self._known_texts) >= 4096:  # limits memory
                self._known_texts.clear()
            self._known_texts[key] = None
            self.write("insert or ignore into texts values (?, ?)", key, _storable(text))
        return key

    def event(self, run_id: int, kind: str, **data: Any) -> None:
        self.write("insert into events (run_id, at, kind, data) values (?, ?, ?, ?)", run_id, now(), kind, dumps(data))

    # Reading

    def rows(self, sql: str, *values: Any) -> Iterator[sqlite3.Row]:
        """Yield the rows of a query. Raises StoreError if the file cannot be read."""
        try:
            for row in self._reader.execute(sql, values):  # noqa: UP028  # which would close a cursor of a closed file
                yield row
        except (sqlite3.Error, UnicodeError) as error:  # UnicodeError: SQLite quotes damaged content
            raise StoreError(f"cannot read {self.path}: {join_lines(error)}{_advice(error)}") from error

    def row(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """Return the first row of a query, or None. Raises the same errors as `rows`."""
        return next(self.rows(sql, *values), None)

    def number(self, sql: str, *values: Any) -> int:
        """Return the single number that a query selects, e.g. a count."""
        row = self.row(sql, *values)
        return row[0] if row else 0

    def list_runs(self, kinds: Collection[str] = LISTED) -> list[sqlite3.Row]:
        """List the runs of some kinds, newest first, without removed ones."""
        rows = self.rows("select * from runs where file is not null or status = 'eval' order by id desc")
        return [row for row in rows if kind_of(row) in kinds and row["status"] != REMOVED]

    def find_run(self, run: str, *, kinds: Collection[str] = LISTED) -> sqlite3.Row:
        """Find a run by its name, a tag, or a prefix of its name. "last" is the newest of these kinds. A tag stands for
        the newest run with it.

        Raises StoreError if there is none, or several.
        """
        if run == "last":
            found = self.list_runs(kinds)[:1]
        else:
            begin = list(self.rows("select * from runs where ? != '' and substr(run, 1, length(?)) = ?", run, run, run))
            begin = [r for r in begin if r["status"] != REMOVED]
            found = [r for r in begin if r["run"] == run]
            found = found or self._tagged(run)[:1] or begin
        if len(found) != 1:
            known = ", ".join(f"{r['run']} ({kind_of(r)})" for r in self.list_runs(LISTED)[:5])
            what = "is not unique" if found else "is not"
            if run == "last":
                raise StoreError(
                    f"no run of {' or '.join(kinds)} is in {self.path}; the newest runs: {known or 'none'}"
                )
            raise StoreError(f"run '{run}' {what} in {self.path}; the newest runs: {known or 'none'}")
        return found[0]

    def _tagged(self, tag: str) -> list[sqlite3.Row]:
        """List the runs of any kind with a tag, newest first."""
        rows = self.rows("select * from runs order by id desc")
        return [row for row in rows if row["status"] != REMOVED and tag in tags_of(row)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            try:
                self.flush()
            finally:
                self._sync.close()
            self._check_disk()
        finally:
            self._reader.close()
            self.conn.close()


@contextmanager
def _creation_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time create a database in a folder, because SQLite's busy timeout does not cover the change
    to WAL. Raises StoreError if another process holds the folder's lock for more than PATIENCE seconds."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    begun = time.monotonic()
    try:
        with suppress(OSError):  # a file system without locks
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() - begun > PATIENCE:
                        raise StoreError(
                            f"another process has locked the folder {folder} for more than {PATIENCE:g} seconds while "
                            f"it makes a database there; `fuser {folder}` names it: end it, or name another folder "
                            "with --db"
                        ) from None
                    time.sleep(POLL_EVERY)
        yield
    finally:
        os.close(handle)


def join_lines(error: BaseException) -> str:
    """Return an error's text on one line, since SQLite quotes multi-line statements."""
    return " ".join(str(error).split())[:300]


def _advice(error: Exception) -> str:
    """Return the end of an error message: advice for the user, or an empty text."""
    words = str(error)
    if "full" in words or "No space" in words or "disk I/O error" in words:
        return "; free some space on that disk, then continue with workbench resume"
    if "locked" in words:
        return "; another process is writing to it: wait for it, or name another database with --db"
    if isinstance(error, PermissionError) or "readonly" in words or "unable to open" in words:
        return "; make the file and its folder writable for you, or name another database with --db"
    return ""


def kind_of(row: sqlite3.Row) -> str:
    """Return the kind of a run: `optimize`, `eval`, or the kind of a run that is not listed. Versions that stored no
    kind are recognized by other columns."""
    return row["kind"] or ("optimize" if row["file"] is not None else row["status"])


def tags_of(row: sqlite3.Row) -> list[str]:
    """Return the tags of a run."""
    return parse_json(row["tags"], f"the tags of run {row['run']} (table runs)", list) if row["tags"] else []


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def insertion(into: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the statement that adds a row, given by column, followed by the values. into: e.g. `insert into calls`."""
    return _insertion_sql(into, tuple(row)), *row.values()


@cache
def _insertion_sql(into: str, columns: tuple[str, ...]) -> str:
    return f"{into} ({', '.join(columns)}) values ({', '.join('?' * len(columns))})"


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def dumps(value: Any) -> str:
    return _storable(_encode(value))


def _storable(text: str) -> str:
    """Escape lone surrogates, which SQLite does not accept."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

"""The run database: one SQLite file, through sqlite-utils, with a documented and migrated schema.

runs          one row for each `workbench optimize`
candidates    workflows that were proposed: tree, parent and patch
evaluations   one row for each (candidate, split, replica) that was scored
results       one row for each example of an evaluation: score, failure, feedback, spans
calls         every LM call and tool effect that was settled, under its content key
attempts      attempts that failed, and requests whose outcome nobody knows because a kill came between
texts         large texts once, by hash
events        what happened, in order
artifacts     files that a run wrote

An answer is on disk before anyone sees it: it goes through `write`. One thread commits (synchronous=FULL) what has
gathered while it was busy with the commit before, so that many calls share the wait for the disk and the event loop
never waits for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from workbench.errors import StoreError

SCHEMA_VERSION = 1

_M001_INITIAL = """
create table runs (
    id integer primary key, run text not null unique, name text, status text not null, started text not null,
    finished text, file text, spec text not null, options text not null, data_hash text, seed integer,
    report text, seconds real not null default 0, host text, pid integer, version text);
create table candidates (
    run_id integer not null references runs(id), hash text not null, seq integer not null, parent text,
    optimizer text, note text, patch text, tree text not null, primary key (run_id, hash)) without rowid;
create table evaluations (
    id integer primary key, run_id integer not null references runs(id), candidate text not null, split text not null,
    replica integer not null, n integer not null, score real, failed integer not null, complete integer not null,
    objectives text, unique (run_id, candidate, split, replica));
create table results (
    evaluation_id integer not null references evaluations(id) on delete cascade, position integer not null,
    example text not null, score real, failure text, message text, feedback text, prediction text, spans text,
    primary key (evaluation_id, position)) without rowid;
create table calls (
    run_id integer not null references runs(id), key text not null, kind text not null, role text not null,
    lm text not null, request text not null, response text, outcome text not null, message text,
    attempts integer not null, prompt_tokens integer not null, completion_tokens integer not null, usd real,
    seconds real not null, primary key (run_id, key)) without rowid;
create table attempts (
    id integer primary key, run_id integer not null references runs(id), key text not null, role text not null,
    process integer not null, outcome text, message text, prompt_tokens integer, usd real);
create index attempts_key on attempts(run_id, key);
create table texts (hash text primary key, text text not null) without rowid;
create table events (
    id integer primary key, run_id integer not null references runs(id), at text not null, kind text not null,
    data text not null);
create table artifacts (
    id integer primary key, run_id integer not null references runs(id), name text not null, path text not null,
    sha256 text not null);
"""


def _migrations() -> Any:
    from sqlite_utils import Migrations

    migrations = Migrations("workbench")

    @migrations()
    def m001_initial(db: Any) -> None:
        for statement in _M001_INITIAL.split(";"):
            if statement.strip():
                db.conn.execute(statement)

    return migrations


#: SQLite takes at least so many values in one statement.
_MOST_VALUES = 30_000


def _merged(rows: Iterable[tuple[str, tuple[Any, ...]]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Rows in their order, those of one `insert ... values (...)` after another as one statement.

    Each statement lets go of the interpreter's lock and has to get it back, for which a busy event loop lets it wait.
    """
    for sql, group in itertools.groupby(rows, key=lambda row: row[0]):
        head, mark, form = sql.rpartition(" values ")
        if not (mark and head.startswith("insert") and form.find(")") == len(form) - 1):
            yield from group
            continue
        left = [values for _, values in group]
        step = max(1, _MOST_VALUES // max(1, len(left[0])))
        for start in range(0, len(left), step):
            some = left[start : start + step]
            yield sql + f", {form}" * (len(some) - 1), tuple(itertools.chain.from_iterable(some))


class Store:
    """The database of runs. Opened for one process; readers may look on at any time (WAL)."""

    def __init__(self, path: str | Path, *, create: bool = True):
        self.path = Path(path)
        if not create and not self.path.exists():
            raise StoreError(f"there is no run database at {self.path}; name another with --db")
        self._pending: list[tuple[str, tuple[Any, ...]]] = []
        self._batch: asyncio.Future[None] | None = None
        self._busy = False
        self._lock = threading.Lock()  # one thread at a time on the writing connection
        self._thread: ThreadPoolExecutor | None = None
        self._known_texts: dict[str, None] = {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _alone_in(self.path.parent):
                self.conn = self._connect()
                self._prepare()
            self._reader = self._connect()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot use the run database {self.path}: {error}{_what_to_do(error)}") from error

    def _connect(self) -> sqlite3.Connection:
        conn = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
        conn.row_factory = sqlite3.Row
        for pragma in ("synchronous=full", "foreign_keys=on", "busy_timeout=10000"):
            conn.execute(f"pragma {pragma}")
        return conn

    def _prepare(self) -> None:
        import sqlite_utils

        version = self.conn.execute("pragma user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} was written by a newer workbench (schema {version}, this one knows {SCHEMA_VERSION}); "
                "update agent-workbench"
            )
        tables = {name for (name,) in self.conn.execute("select name from sqlite_master where type = 'table'")}
        if tables and "_sqlite_migrations" not in tables:
            raise StoreError(f"{self.path} is a database of something else; name another with --db")
        self.conn.execute("pragma journal_mode=wal")  # stays with the file, so not before it is known as ours
        if version < SCHEMA_VERSION:
            _migrations().apply(sqlite_utils.Database(self.conn))
            self.conn.execute(f"pragma user_version={SCHEMA_VERSION}")

    # Writing

    def write(self, sql: str, *values: Any) -> asyncio.Future[None]:
        """Queue one row; the future is done when it is on disk. An error reaches all who wait for the same commit."""
        if self._batch is None:
            loop = asyncio.get_running_loop()
            self._batch = loop.create_future()
            if not self._busy:
                loop.call_soon(self._start_commit)
        self._pending.append((sql, values))
        return self._batch

    def _start_commit(self) -> None:
        """Hand what is queued to the writing thread; when it is done, hand it what has gathered since."""
        rows, self._pending = self._pending, []
        batch, self._batch = self._batch, None
        if not rows or batch is None:
            return
        self._busy = True
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="workbench-store")
        loop = asyncio.get_running_loop()

        def done(error: StoreError | None) -> None:
            self._busy = False
            if self._batch is not None:
                self._start_commit()
            if batch.done():
                return
            if error is None:
                batch.set_result(None)
            else:
                batch.set_exception(error)
                batch.exception()  # those who wait are told; nobody waiting is no second fault

        def work() -> None:
            error = self._commit(rows)
            with suppress(RuntimeError):  # the loop is closed: the rows are safe, and nobody waits
                loop.call_soon_threadsafe(done, error)

        self._thread.submit(work)

    def _commit(self, rows: list[tuple[str, tuple[Any, ...]]]) -> StoreError | None:
        if not rows:
            return None
        statements = list(_merged(rows))
        with self._lock:
            try:
                if len(statements) == 1:  # is a transaction by itself
                    self.conn.execute(*statements[0])
                    return None
                self.conn.execute("begin immediate")
                for sql, values in statements:
                    self.conn.execute(sql, values)
                self.conn.execute("commit")
                return None
            except sqlite3.Error as error:
                if self.conn.in_transaction:
                    self.conn.execute("rollback")
                self._known_texts.clear()
                return self._failure(error)

    def _failure(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"cannot write to {self.path}: {error}; what was recorded before is safe{_what_to_do(error)}")

    def flush(self) -> None:
        """Commit what is queued, now, after what the writing thread was handed before."""
        rows, self._pending = self._pending, []
        batch, self._batch = self._batch, None
        error = self._commit(rows) if self._thread is None else self._thread.submit(self._commit, rows).result()
        if batch is not None and not batch.done() and not batch.get_loop().is_closed():
            if error is None:
                batch.set_result(None)
            else:
                batch.set_exception(error)
                batch.exception()
        if error is not None:
            raise error

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """One statement, committed at once after what is queued."""
        self.flush()
        with self._lock:
            try:
                return self.conn.execute(sql, values)
            except sqlite3.Error as error:
                raise self._failure(error) from error

    def text(self, text: str) -> str:
        """Keep a large text once; returns its hash. The row joins the next batch."""
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        if key not in self._known_texts:
            if len(self._known_texts) >= 4096:  # a bound, so that memory stays flat over any number of calls
                self._known_texts.clear()
            self._known_texts[key] = None
            self.write("insert or ignore into texts values (?, ?)", key, _storable(text))
        return key

    def event(self, run_id: int, kind: str, **data: Any) -> None:
        self.write("insert into events (run_id, at, kind, data) values (?, ?, ?, ?)", run_id, now(), kind, dumps(data))

    # Reading

    def rows(self, sql: str, *values: Any) -> Iterator[sqlite3.Row]:
        yield from self._reader.execute(sql, values)

    def row(self, sql: str, *values: Any) -> sqlite3.Row | None:
        return self._reader.execute(sql, values).fetchone()

    def find_run(self, run: str) -> sqlite3.Row:
        """A run by its name or a beginning of it; "last" is the newest. Raises StoreError."""
        if run == "last":
            found = list(self.rows("select * from runs where file is not null order by id desc limit 1"))
        else:
            found = list(self.rows("select * from runs where run = ? or run like ? || '%'", run, run))
            found = [r for r in found if r["run"] == run] or found
        if len(found) != 1:
            known = ", ".join(
                r["run"] for r in self.rows("select run from runs where file is not null order by id desc limit 5")
            )
            what = "is not unique" if found else "is not"
            raise StoreError(f"run '{run}' {what} in {self.path}; the newest runs: {known or 'none'}")
        return found[0]

    def close(self) -> None:
        try:
            self.flush()
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=True)
            self._reader.close()
            self.conn.close()


class RunLock:
    """Keeps a second process off a run. The system releases it when the process dies, however it dies."""

    def __init__(self, store: Store, run: str):
        self.path = store.path.with_name(f"{store.path.name}-{run}.lock")
        self.run = run

    def __enter__(self) -> RunLock:
        import fcntl

        while True:
            self._file = open(self.path, "a+")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.seek(0)
                holder = self._file.read().strip() or "another process"
                self._file.close()
                raise StoreError(f"run {self.run} is in use by {holder}; wait for it, or stop it first") from None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                    break
            self._file.close()  # its holder removed it between our opening and our locking
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {os.uname().nodename}")
        self._file.flush()
        return self

    def __exit__(self, *exc: object) -> None:
        self.path.unlink(missing_ok=True)
        self._file.close()

    def held(self) -> bool:
        """Whether a process has the lock now."""
        import fcntl

        try:
            with open(self.path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process at a time makes a database in a folder: SQLite's waiting does not cover the change to WAL."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _what_to_do(error: Exception) -> str:
    """The end of an error message, where there is something to do about it."""
    words = str(error)
    if "full" in words or "No space" in words or "disk I/O error" in words:
        return "; make room on that disk, then go on with workbench resume"
    if "locked" in words:
        return "; another process is writing to it: wait for it, or name another database with --db"
    return ""


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def dumps(value: Any) -> str:
    return _storable(_encode(value))


def _storable(text: str) -> str:
    """SQLite takes no lone surrogates; they are kept as escapes."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

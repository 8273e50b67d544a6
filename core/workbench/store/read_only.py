"""A run database to look at: it stays as it is to the byte, and whatever it holds, a look ends."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from workbench.base.files import check_database_files
from workbench.errors import StoreError
from workbench.store.content import read_spec
from workbench.store.database import Store
from workbench.store.schema import check_layout, column_types

#: Seconds that a query may take, and bytes that a text, and with it a row, may have.
PATIENCE, LONGEST = 20.0, 64_000_000

#: Bytes up to which the whole file is checked on opening, which takes at most about a second.
CHECKED = 64_000_000

#: Steps of SQLite's machine between two looks at the clock.
_STEPS = 20_000

_TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "integer": (int,), "real": (float, int), "blob": (bytes,)}


class ReadOnlyStore(Store):
    """The runs in a database, to be read only. Nothing is written: no migration, no lock, no file beside it.

    Files of up to `CHECKED` bytes are checked as a whole by SQLite, larger ones only where they are read. Types are
    checked row by row. Raises StoreError for whatever is no run database, is damaged, or takes too long.
    """

    def __init__(self, path: str | Path, *, check: bool = True):
        """check: whether the whole file is looked at first; a second look at the same file need not."""
        self.path, self._check = Path(path), check
        if not self.path.is_file():
            raise StoreError(f"there is no run database at {self.path}; name another with --db")
        check_database_files(self.path)
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._deadline = time.monotonic() + PATIENCE
        try:
            self._reader = self.conn = self._open()
            self._prepare_reader()
        except (sqlite3.Error, OSError, UnicodeError) as error:  # the last: SQLite quotes what is damaged
            self.close()
            raise StoreError(f"cannot use the run database {self.path}: {_said(error)}") from error
        except StoreError:
            self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        """A writer of today is read beside it. What one of yesterday left beside the file is read in a copy, since
        SQLite would write there. Else the file is all there is, and SQLite need not look for more."""
        wal, shared = (self.path.with_name(f"{self.path.name}-{end}") for end in ("wal", "shm"))
        left = wal.is_file() and wal.stat().st_size > 0
        self._seen: tuple[int, int] | None = None
        if wal.is_file() and shared.is_file() and os.access(shared, os.W_OK):
            return _connect(self.path, "mode=ro")
        if not left:
            self._seen = self._stamp()
            return _connect(self.path, "mode=ro&immutable=1")
        self._copy = tempfile.TemporaryDirectory(prefix="workbench-look-")
        place = Path(self._copy.name) / "run.db"
        shutil.copyfile(self.path, place)
        shutil.copyfile(wal, place.with_name("run.db-wal"))
        return _connect(place, "mode=rw")

    def _prepare_reader(self) -> None:
        conn = self._reader
        conn.row_factory = sqlite3.Row
        conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        conn.set_progress_handler(lambda: time.monotonic() > self._deadline, _STEPS)
        for pragma in ("trusted_schema=off", "cell_size_check=on", "query_only=on", "busy_timeout=10000"):
            conn.execute(f"pragma {pragma}")
        check_layout(conn, self.path)
        if not conn.execute("select count(*) from sqlite_master where name = 'runs'").fetchone()[0]:
            raise StoreError(f"{self.path} has no runs: it is empty, or its first run is just beginning")
        if self._check and self.path.stat().st_size <= CHECKED:
            wrong = conn.execute("pragma quick_check(1)").fetchone()[0]
            if wrong != "ok":
                raise StoreError(f"{self.path} is damaged ({wrong!r:.200}); use a copy of it")

    def _stamp(self) -> tuple[int, int]:
        found = self.path.stat()
        return found.st_mtime_ns, found.st_size

    def is_current(self) -> bool:
        """Return True if a new look would find what this one does: the file was opened beside its writer, or nobody has
        written since."""
        if self._copy is not None:
            return False
        return self._seen is None or (
            self._seen == self._stamp() and not self.path.with_name(f"{self.path.name}-wal").is_file()
        )

    def rows(self, sql: str, *values: Any) -> Iterator[sqlite3.Row]:
        """Rows of a query, each checked. Raises StoreError, which names the table and the row."""
        table = found[1] if (found := re.search(r"\bfrom (\w+)", sql)) else "?"
        self._deadline, number = time.monotonic() + PATIENCE, 0
        try:
            for row in self._reader.execute(sql, values):
                number += 1
                self._check_row(row, table, number, "left join" in sql)
                yield row
            if self._seen is not None and self._seen != self._stamp():
                raise StoreError(f"{self.path} was written while it was read; look once more")
        except (sqlite3.Error, OSError, UnicodeError) as error:  # the last: SQLite quotes what is damaged
            raise StoreError(
                f"{self.path}, table {table}, row {number + 1} of this look cannot be read: {_said(error)}"
            ) from None

    def row(self, sql: str, *values: Any) -> sqlite3.Row | None:
        return next(self.rows(sql, *values), None)

    def _check_row(self, row: sqlite3.Row, table: str, number: int, joined: bool) -> None:
        """joined: a row that has no other half has nothing in its columns."""
        known = column_types()
        for name, value in zip(row.keys(), row, strict=True):
            kind, empty = known.get(name, ("", True))
            if kind and not (isinstance(value, _TYPES[kind]) or (value is None and (empty or joined))):
                what = "nothing" if value is None else f"a {type(value).__name__}"
                raise StoreError(
                    f"{self.path} is damaged: table {table}, row {number} of this query has {what} in the column "
                    f"{name}, which should contain {kind}; use a copy of the database"
                )

        if "run" in row.keys() and not re.fullmatch(r"[\w-]{1,64}", row["run"]):  # noqa: SIM118  # files are named by it
            raise StoreError(f"{self.path} is damaged: table {table}, row {number} of this look names no run")
        if "spec_checksum" in row.keys():  # noqa: SIM118
            read_spec(row)

    def write(self, sql: str, *values: Any) -> NoReturn:
        """Refused."""
        raise StoreError(f"{self.path} was opened to be read only")

    execute = write

    def flush(self) -> None:
        """There is nothing to write."""

    def close(self) -> None:
        """Close the file, and remove a copy of it."""
        conn = getattr(self, "_reader", None)
        if conn is not None:
            conn.close()
        if self._copy is not None:
            self._copy.cleanup()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.resolve()))}?{mode}", uri=True, isolation_level=None, timeout=10, check_same_thread=False
    )


def _said(error: Exception) -> str:
    """Return SQLite's message, in our words where its own lead nowhere or repeat what is stored."""
    words = str(error)
    if "interrupted" in words:
        return f"it took more than {PATIENCE:g} seconds"
    if isinstance(error, UnicodeError) or "decode" in words:
        return "a text is not UTF-8"
    if "too big" in words:
        return f"it has a text of more than {LONGEST / 1e6:g} MB"
    return " ".join(words.split())[:300]


def is_run_database(path: Path) -> bool:
    """Return True if a file is a database of runs. Agents may have databases of their own."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, timeout=0.1, uri=True)) as found:
        return found.execute("select 1 from sqlite_master where name = 'sealed_tests'").fetchone() is not None
    return False

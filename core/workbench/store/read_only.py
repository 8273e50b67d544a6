"""Read-only access to a run database: not a byte changes, and any damage is one error that names the file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from workbench.errors import StoreError, WorkbenchError
from workbench.store.database import Store, join_lines
from workbench.store.schema import check_version

#: Files up to this many bytes are checked completely on opening, which takes at most about a second.
CHECKED = 64_000_000

#: Errors raised on use by content that workbench did not write.
_OF_CONTENT = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


class ReadOnlyStore(Store):
    """A run database opened read-only. Nothing is written: no migration, no lock, no file next to it.

    SQLite checks files of up to `CHECKED` bytes completely, larger ones only where they are read. Raises StoreError for
    a file that is no run database or is damaged; in a `with` block also when its content is used.
    """

    def __init__(self, path: str | Path, *, check: bool = True):
        """Open the file. check: check all of it first, which a second look at the same file does not need."""
        self.path, self._check = Path(path), check
        if not self.path.is_file():
            raise StoreError(f"there is no run database at {self.path}; name another with --db")
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._reader = self.conn = self._open()
            self._prepare_reader()
        except (sqlite3.Error, OSError, UnicodeError) as error:  # UnicodeError: SQLite quotes damaged content
            self.close()
            raise StoreError(f"cannot use the run database {self.path}: {join_lines(error)}") from error
        except StoreError:
            self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        """Connect to the file. If a process is writing now, read next to it. If an ended process left a WAL, read a
        copy, since SQLite would write to the original. Otherwise the file is complete, and SQLite need not look for a
        WAL."""
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
        for pragma in ("trusted_schema=off", "cell_size_check=on", "query_only=on", "busy_timeout=10000"):
            conn.execute(f"pragma {pragma}")
        check_version(conn, self.path)
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
        """Return True if reopening would show the same content: a writer is next to it, or nobody has written since."""
        if self._copy is not None:
            return False
        return self._seen is None or (
            self._seen == self._stamp() and not self.path.with_name(f"{self.path.name}-wal").is_file()
        )

    def rows(self, sql: str, *values: Any) -> Iterator[sqlite3.Row]:
        """Yield the rows of a query. Raises StoreError if the file cannot be read."""
        yield from super().rows(sql, *values)
        if self._seen is not None and self._seen != self._stamp():
            raise StoreError(f"{self.path} was written while it was read; look once more")

    def write(self, sql: str, *values: Any) -> NoReturn:
        """Refuse to write."""
        raise StoreError(f"{self.path} was opened to be read only")

    execute = write

    def flush(self) -> None:
        """Do nothing: there is nothing to write."""

    def __exit__(self, *error: object) -> None:
        self.close()
        if isinstance(error[1], _OF_CONTENT) and not isinstance(error[1], WorkbenchError):
            raise StoreError(
                f"{self.path} has content that this version of workbench cannot show ({type(error[1]).__name__}: "
                f"{join_lines(error[1])}): it is damaged, or was not written by workbench; use a copy of it"
            ) from error[1]

    def close(self) -> None:
        """Close the file and remove its copy, if any."""
        conn = getattr(self, "_reader", None)
        if conn is not None:
            conn.close()
        if self._copy is not None:
            self._copy.cleanup()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.resolve()))}?{mode}", uri=True, isolation_level=None, timeout=10, check_same_thread=False
    )


def is_run_database(path: Path) -> bool:
    """Return True if a file is a run database. Agents may have databases of their own."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, timeout=0.1, uri=True)) as found:
        return found.execute("select 1 from sqlite_master where name = 'sealed_tests'").fetchone() is not None
    return False

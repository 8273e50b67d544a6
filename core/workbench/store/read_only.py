"""A run database to look at: it stays as it is to the byte, and damage is one error that names the file."""

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
from workbench.store.database import Store, one_line
from workbench.store.schema import check_version

#: Bytes up to which the whole file is checked on opening, which takes at most about a second.
CHECKED = 64_000_000

#: Errors that content raises where it is used, if it is not what workbench writes.
_OF_CONTENT = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


class ReadOnlyStore(Store):
    """The runs in a database, to be read only. Nothing is written: no migration, no lock, no file beside it.

    Files of up to `CHECKED` bytes are checked as a whole by SQLite, larger ones only where they are read. Raises
    StoreError for whatever is no run database, or is damaged; in a `with` also where its content is used.
    """

    def __init__(self, path: str | Path, *, check: bool = True):
        """check: whether the whole file is looked at first; a second look at the same file need not."""
        self.path, self._check = Path(path), check
        if not self.path.is_file():
            raise StoreError(f"there is no run database at {self.path}; name another with --db")
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._reader = self.conn = self._open()
            self._prepare_reader()
        except (sqlite3.Error, OSError, UnicodeError) as error:  # the last: SQLite quotes what is damaged
            self.close()
            raise StoreError(f"cannot use the run database {self.path}: {one_line(error)}") from error
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
        """Return True if a new look would find what this one does: the file was opened beside its writer, or nobody has
        written since."""
        if self._copy is not None:
            return False
        return self._seen is None or (
            self._seen == self._stamp() and not self.path.with_name(f"{self.path.name}-wal").is_file()
        )

    def rows(self, sql: str, *values: Any) -> Iterator[sqlite3.Row]:
        """The rows of a query. Raises StoreError where the file cannot be read."""
        yield from super().rows(sql, *values)
        if self._seen is not None and self._seen != self._stamp():
            raise StoreError(f"{self.path} was written while it was read; look once more")

    def write(self, sql: str, *values: Any) -> NoReturn:
        """Refused."""
        raise StoreError(f"{self.path} was opened to be read only")

    execute = write

    def flush(self) -> None:
        """There is nothing to write."""

    def __exit__(self, *error: object) -> None:
        self.close()
        if isinstance(error[1], _OF_CONTENT) and not isinstance(error[1], WorkbenchError):
            raise StoreError(
                f"{self.path} has content that this version of workbench cannot show ({type(error[1]).__name__}: "
                f"{one_line(error[1])}): it is damaged, or was not written by workbench; use a copy of it"
            ) from error[1]

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


def is_run_database(path: Path) -> bool:
    """Return True if a file is a database of runs. Agents may have databases of their own."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, timeout=0.1, uri=True)) as found:
        return found.execute("select 1 from sqlite_master where name = 'sealed_tests'").fetchone() is not None
    return False

"""Optuna's storages for studies that several runs search: a journal file or a PostgreSQL database."""

from __future__ import annotations

import json
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from workbench.base.distribution import pip_install
from workbench.errors import StoreError
from workbench.spec import connect

#: Age in seconds at which a journal's lock is considered left by a killed run. A lock is held for one line.
LOCKED = 10


def check_address(storage: str) -> str:
    """Return a storage's address if it is valid. Raise ValueError, without quoting the address, if not."""
    if "://" not in storage:
        return storage
    try:
        parts = urlsplit(storage)
        secret = parts.password is not None or "password" in parse_qs(parts.query)
    except ValueError:
        raise ValueError("that is no address: write postgresql://USER@HOST/DATABASE") from None
    if secret:
        raise ValueError(
            "an address has no password in a workflow file: put it into the variable PGPASSWORD or into ~/.pgpass, and "
            "write postgresql://USER@HOST/DATABASE"
        )
    if parts.scheme != "postgresql":
        raise ValueError("name a PostgreSQL database (postgresql://USER@HOST/DATABASE), or the path of a journal file")
    if find_spec("psycopg") is None:
        raise ValueError(f"a PostgreSQL database needs the package psycopg: {pip_install('standard[postgres]')}")
    return storage


def open_storage(storage: str, base: Path) -> Any:
    """Open Optuna's storage. base: folder that relative paths start from.

    Raises StoreError if it cannot be reached or written.
    """
    if "://" in storage:
        connect(storage, now=True)
        return _open_database(storage)
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock, JournalStorage

    path = base / storage
    try:
        _check_journal(path)
        lock = JournalFileSymlinkLock(str(path), grace_period=LOCKED)  # it holds on NFS
        return JournalStorage(JournalFileBackend(str(path), lock))
    except OSError as error:
        raise StoreError(f"the journal file {path} cannot be used: {error}") from None


def check_storage(storage: str, base: Path) -> None:
    """Raise StoreError if a storage cannot be used. Creates no journal file."""
    path = base / storage
    if "://" in storage:
        close_storage(_open_database(storage))
    elif not path.parent.is_dir():
        raise StoreError(f"the journal file {path} cannot be used: its folder is missing")
    else:
        _check_journal(path)


def close_storage(storage: Any) -> None:
    """Close the connections of a database. A journal file is opened anew for each operation."""
    if hasattr(storage, "engine"):
        storage.remove_session()
        storage.engine.dispose()


def _check_journal(path: Path) -> None:
    """Raise StoreError if a file was not written by Optuna, before a line is appended to it."""
    first = b""
    try:
        if path.exists():
            with path.open("rb") as file:
                first = file.readline(1 << 20)
        if first and "op_code" not in json.loads(first):
            raise ValueError("its first line has no op_code")
    except OSError as error:
        raise StoreError(f"the journal file {path} cannot be used: {error}") from None
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} is not a journal file of Optuna ({error}): name another one") from None


def _open_database(storage: str) -> Any:
    import sqlalchemy
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    address = storage.replace("postgresql:", "postgresql+psycopg:", 1)
    try:
        with sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool).connect() as connection:
            # Runs that start at the same time would all create the tables, which fails for all but the first.
            lock = {"key": zlib.crc32(b"workbench_optuna")}
            connection.execute(sqlalchemy.text("select pg_advisory_lock(:key)"), lock)
            try:
                return RDBStorage(address, engine_kwargs={"pool_pre_ping": True})
            finally:
                connection.execute(sqlalchemy.text("select pg_advisory_unlock(:key)"), lock)
    except (SQLAlchemyError, RuntimeError) as error:
        raise StoreError(f"the database {storage} cannot be used: {str(error).splitlines()[0]}") from None

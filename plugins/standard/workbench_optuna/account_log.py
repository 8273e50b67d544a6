"""Where the account of a study is kept: beside Optuna's journal file, or in the PostgreSQL database of its trials."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from workbench.base.distribution import pip_install
from workbench.errors import StoreError
from workbench_optuna.account import Account

#: The end of the name of the file beside Optuna's journal.
BESIDE = ".account"
#: Seconds after which the lock of a journal counts as that of a searcher that was killed. It is held for one line.
LOCKED = 10


def open_journal(path: str) -> Any:
    """Open a journal file under a lock that holds on NFS."""
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    return JournalFileBackend(path, JournalFileSymlinkLock(path, grace_period=LOCKED))


class AccountLog(Protocol):
    """The operations on one account, in one order for all members."""

    def apply(self, operation: Mapping[str, Any]) -> tuple[Account, str]:
        """Carry out an operation, and return the account after it, and its answer (`Account.apply`)."""
        ...

    def read(self) -> Account:
        """Return the account as it is now."""
        ...

    def close(self) -> None:
        """Close what it holds open, which is also Optuna's."""
        ...


class FileLog:
    """A line for each operation, appended under Optuna's lock, which holds on NFS. Every reader gets the same account,
    since it applies the same lines in the same order: no line is ever changed."""

    def __init__(self, path: str, study: str):
        self._backend, self._path, self._study = open_journal(path), path, study
        self._account, self._next = Account(), 0

    def apply(self, operation: Mapping[str, Any]) -> tuple[Account, str]:
        key = secrets.token_hex(8)
        self._backend.append_logs([{**operation, "study": self._study, "key": key}])
        return self._account, self._read(key)

    def read(self) -> Account:
        self._read("")
        return self._account

    def close(self) -> None:
        pass  # each operation opens the file anew

    def _read(self, wanted: str) -> str:
        answer = ""
        try:
            for line in self._backend.read_logs(self._next):
                key = line.pop("key")
                if line.pop("study") == self._study:
                    said = self._account.apply(line)
                    answer = said if key == wanted else answer
                self._next += 1
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{self._path}, line {self._next + 1}, is not an account of searchers ({type(error).__name__}: "
                f"{error}): name another file under storage"
            ) from None
        return answer


class TableLog:
    """A row for each study, locked while an operation changes it."""

    CREATE = "create table if not exists workbench_accounts (study text primary key, account text not null)"
    ADD = "insert into workbench_accounts values (:study, :account) on conflict do nothing"
    READ = "select account from workbench_accounts where study = :study"
    WRITE = "update workbench_accounts set account = :account where study = :study"

    def __init__(self, storage: Any, study: str):
        self._storage, self._engine, self._study = storage, storage.engine, study

    def close(self) -> None:
        self._storage.remove_session()
        self._engine.dispose()

    def apply(self, operation: Mapping[str, Any]) -> tuple[Account, str]:
        from sqlalchemy import text

        with self._engine.begin() as connection:
            found = connection.execute(text(f"{self.READ} for update"), {"study": self._study}).scalar_one()
            account = Account.of(json.loads(found))
            answer = account.apply(operation)
            stored = {"study": self._study, "account": json.dumps(account.as_dict())}
            connection.execute(text(self.WRITE), stored)
        return account, answer

    def read(self) -> Account:
        from sqlalchemy import text

        with self._engine.connect() as connection:
            return Account.of(json.loads(connection.execute(text(self.READ), {"study": self._study}).scalar_one()))


def check_address(storage: str) -> str:
    """Return an address of a storage. Raises ValueError, which does not show it, if it cannot be one."""
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


def open_storage(storage: str, base: Path, study: str) -> tuple[Any, AccountLog]:
    """Open Optuna's storage and the account of a study in it. base: what a path is relative to.

    Raises StoreError if it cannot be reached or written.
    """
    from optuna.storages.journal import JournalStorage

    if "://" in storage:
        return _open_database(storage, study)
    path = base / storage
    try:
        _check_journal(path)
        opened = JournalStorage(open_journal(str(path)))
        return opened, FileLog(f"{path}{BESIDE}", study)
    except OSError as error:
        raise StoreError(f"the journal file {path} cannot be used: {error}") from None


def _check_journal(path: Path) -> None:
    """Raise StoreError for a file that Optuna did not write, before it appends a line."""
    first = b""
    if path.exists():
        with path.open("rb") as file:
            first = file.readline(1 << 20)
    try:
        if first and "op_code" not in json.loads(first):
            raise ValueError("its first line has no op_code")
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} is not a journal file of Optuna ({error}): name another one") from None


def _open_database(storage: str, study: str) -> tuple[Any, AccountLog]:
    import sqlalchemy
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    address = storage.replace("postgresql:", "postgresql+psycopg:", 1)
    try:
        with sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool).connect() as connection:
            # Searchers that start at once would create the tables at once, which fails for all but the first.
            lock = {"key": zlib.crc32(b"workbench_accounts")}
            connection.execute(sqlalchemy.text("select pg_advisory_lock(:key)"), lock)
            try:
                opened = RDBStorage(address, engine_kwargs={"pool_pre_ping": True})
                connection.execute(sqlalchemy.text(TableLog.CREATE))
                empty = {"study": study, "account": json.dumps(Account().as_dict())}
                connection.execute(sqlalchemy.text(TableLog.ADD), empty)
                connection.commit()
            finally:
                connection.execute(sqlalchemy.text("select pg_advisory_unlock(:key)"), lock)
    except (SQLAlchemyError, RuntimeError) as error:
        raise StoreError(f"the database {storage} cannot be used: {str(error).splitlines()[0]}") from None
    return opened, TableLog(opened, study)

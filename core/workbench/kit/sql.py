"""Untrusted SQL in a process of its own: statements of a language model, scripts from rows of data.

    with Database.make("create table t (a); insert into t values (1)") as database:
        database.run("select * from t")

Each `Database` is a child process without files, network or rights; see sql_process.py. Its output is treated as data.
Needs Unix. A read-only process is reused for further databases of the same script.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

import workbench.kit.confine as confine
from workbench.errors import SandboxError
from workbench.kit import sql_process
from workbench.kit.sql_process import bare as bare

REUSES = 200  # uses of a read-only process
IDLE = 8  # idle read-only processes kept
ROWS = 10_000  # default limit on the rows of a result
_LARGEST = 1 << 28  # bytes of a message
_START = 30.0  # seconds


class Database:
    """A database in memory. If SQLite or its limits refuse, methods raise ValueError, worded for a model.

    reads: whether statements may only read. Close it, or use `with`. Only one thread at a time may use it.
    """

    def __init__(self, image: bytes | None = None, *, reads: bool = False):
        self._socket = _open_session()
        self.changes = 0  # rows that statements have changed so far
        self.uses, self.script, self.broken = 1, "", False
        if image is not None:
            try:
                self._ask({"do": "open", "reads": reads}, image)
            except ValueError:
                self.close()
                raise

    @classmethod
    def make(cls, script: str, *, reads: bool = False) -> Database:
        """A new database, made by a script of statements. `pragma` statements have no effect. Raises ValueError."""
        with _idle_lock:
            waiting = next((d for d in _idle if d.script == script), None) if reads else None
            if waiting is not None:
                _idle.remove(waiting)
                waiting.uses += 1
                return waiting
        database = cls(make_image(script), reads=reads)
        database.script = script if reads else ""
        return database

    def run(self, statement: str, *, most: int = ROWS) -> list[tuple[Any, ...]]:
        """Run one statement and return at most `most` rows."""
        answer = self._ask({"do": "run", "statement": statement, "most": most})
        self.changes = int(answer["changes"])
        return [tuple(_from_json(value) for value in row) for row in answer["rows"]]

    def verbs(self, statement: str) -> list[str]:
        """The actions of a statement according to SQLite: select, insert, update, delete, create, drop, alter, ...; an
        empty list for a statement that fails."""
        return [str(verb) for verb in self._ask({"do": "verbs", "statement": statement})["verbs"]]

    def columns(self, table: str) -> list[tuple[str, str, int]]:
        """(name, declared type, position in the primary key; 0: not in it) of each column."""
        rows = self._ask({"do": "columns", "table": table})["columns"]
        return [(str(name), str(kind), int(key)) for name, kind, key in rows]

    def digest(self) -> str:
        """A hash of the schema and all rows."""
        return str(self._ask({"do": "digest"})["digest"])

    def close(self) -> None:
        if not self.script or self.broken or self.uses >= REUSES:
            return self._socket.close()
        with _idle_lock:
            _idle.append(self)
            if len(_idle) > IDLE:
                _idle.pop(0)._socket.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any], more: bytes | None = None) -> dict[str, Any]:
        try:
            sql_process.send(self._socket.fileno(), json.dumps(request).encode())
            if more is not None:
                sql_process.send(self._socket.fileno(), more)
            answer = json.loads(self._receive())
        except (OSError, ValueError, RecursionError):
            self.broken = True
            raise ValueError("the statement ended the database's process") from None
        if not isinstance(answer, dict) or "error" in answer:
            raise ValueError(str(answer["error"]) if isinstance(answer, dict) else "no answer")
        return answer

    def _receive(self) -> bytes:
        data = sql_process.receive(self._socket.fileno(), _LARGEST)
        if data is None:
            raise OSError("it ended")
        return data


_idle: list[Database] = []
_idle_lock = threading.Lock()


@lru_cache(maxsize=64)
def make_image(script: str) -> bytes:
    """The database that a script makes, in SQLite's file format. Raises ValueError if the script fails."""
    with Database() as database:
        database._ask({"do": "make"}, script.encode("utf-8", "replace"))
        try:
            return database._receive()
        except OSError:
            raise ValueError("the script ended the database's process") from None


def _from_json(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


class _Zygote:
    """The process that forks a child for each session. It starts with the first session and ends with this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.owner = 0

    def session(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with self.lock, theirs:
            if self.process is None or self.process.poll() is not None or self.owner != os.getpid():
                self._start()
            assert self.control is not None
            socket.send_fds(self.control, [b"s"], [theirs.fileno()])
        deadline = struct.pack("ll", sql_process.LONGEST + 10, 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, deadline)
        return ours

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        python = str(base if base.exists() else sys.executable)
        command = [python, "-P", "-s", "-S", "-B", sql_process.__file__, str(theirs.fileno()), confine.__file__]
        with theirs:
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env={"LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.settimeout(_START)
        if ours.recv(1) != b"r":
            raise SandboxError(
                "the process for SQL cannot be started", hint=f"Run {' '.join(command[:-3])} to see its error."
            )
        ours.settimeout(None)
        self.control, self.owner = ours, os.getpid()
        atexit.register(self.stop)

    def stop(self) -> None:
        if self.control is not None and self.owner == os.getpid():
            while _idle:
                _idle.pop()._socket.close()
            self.control.close()  # it ends with its socket, and its children with it
            self.control = None
            if self.process is not None:
                self.process.wait(5)


_zygote = _Zygote()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # the sessions are the parent's


def _open_session() -> socket.socket:
    if not hasattr(os, "fork"):
        raise SandboxError("SQL from models and rows needs a Unix system", hint="Use Linux, macOS or WSL.")
    return _zygote.session()

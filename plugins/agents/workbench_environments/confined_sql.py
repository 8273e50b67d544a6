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
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import workbench_kit.acting.confine as confine
from workbench.errors import SandboxError
from workbench_environments import sql_process
from workbench_environments.sql_process import bare as bare

REUSES, REUSED = 200, 120.0  # how often and for how many seconds a read-only process is reused
IDLE = 8  # maximum read-only processes that wait for reuse
ROWS = 10_000  # of a result, by default
_LARGEST = 1 << 28  # maximum bytes of a message to read
_START = 30.0  # seconds


class Database:
    """A database in memory. If SQLite or its limits refuse, methods raise ValueError, worded for a model.

    reads: whether statements may only read. Close it, or use `with`. Only one thread at a time may use it.
    """

    def __init__(self, image: bytes | None = None, *, reads: bool = False):
        self._connection = _open_session()
        self.changes = 0  # rows that statements have changed so far
        self.steps = 0  # virtual machine steps of the last statement, in hundreds; reproducible
        self.uses, self.script, self.broken, self.begun = 1, "", False, time.monotonic()
        if image is not None:
            try:
                self._ask({"do": "open", "reads": reads}, image)
            except ValueError:
                self.close()
                raise

    @classmethod
    def make(cls, script: str, *, reads: bool = False) -> Database:
        """Make a new database from a script of statements. `pragma` statements have no effect. Raises ValueError."""
        with _idle_lock:
            for old in [d for d in _idle if time.monotonic() - d.begun > REUSED]:
                _idle.remove(old)
                old._connection.close()
            waiting = next((d for d in _idle if d.script == script), None) if reads else None
            if waiting is not None:
                _idle.remove(waiting)
                waiting.uses += 1
                return waiting
        database = cls(make_image(script), reads=reads)
        database.script = script if reads else ""
        return database

    def run(self, statement: str, *, most: int = ROWS) -> list[tuple[Any, ...]]:
        """Run a statement, and return its first rows."""
        request = {"do": "run", "statement": statement, "most": most}
        try:
            answer = self._ask(request)
        except ValueError:
            if not (self.broken and self.uses > 1):
                raise
            self._renew()  # an earlier use, or the time since then, has used the process up
            answer = self._ask(request)
        self.changes, self.steps = int(answer["changes"]), int(answer["steps"])
        return [tuple(_from_json(value) for value in row) for row in answer["rows"]]

    def verbs(self, statement: str) -> list[str]:
        """Return the actions of a statement according to SQLite: select, insert, update, delete, create, drop, alter,
        ...; an empty list for a statement that fails."""
        return [str(verb) for verb in self._ask({"do": "verbs", "statement": statement})["verbs"]]

    def columns(self, table: str) -> list[tuple[str, str, int]]:
        """Return (name, declared type, position in the primary key; 0: not in it) of each column."""
        rows = self._ask({"do": "columns", "table": table})["columns"]
        return [(str(name), str(kind), int(key)) for name, kind, key in rows]

    def digest(self) -> str:
        """Return a hash of the schema and all rows."""
        return str(self._ask({"do": "digest"})["digest"])

    def _renew(self) -> None:
        self._connection.close()
        fresh = type(self)(make_image(self.script), reads=True)
        self._connection, self.broken, self.uses, self.begun = fresh._connection, False, 1, fresh.begun

    def close(self) -> None:
        if not self.script or self.broken or self.uses >= REUSES:
            return self._connection.close()
        with _idle_lock:
            _idle.append(self)
            if len(_idle) > IDLE:
                _idle.pop(0)._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any], more: bytes | None = None) -> dict[str, Any]:
        try:
            self._connection.send_bytes(json.dumps(request).encode())
            if more is not None:
                self._connection.send_bytes(more)
            answer = json.loads(self._connection.recv_bytes(_LARGEST))
        except (EOFError, OSError, ValueError, RecursionError):
            self.broken = True
            raise ValueError("the statement ended the database's process") from None
        if not isinstance(answer, dict) or "error" in answer:
            raise ValueError(str(answer["error"]) if isinstance(answer, dict) else "no answer")
        return answer


_idle: list[Database] = []
_idle_lock = threading.Lock()


_images: dict[str, bytes] = {}
_IMAGES = 1 << 26  # maximum bytes of all cached images


def make_image(script: str) -> bytes:
    """Return the database that a script makes, in SQLite's file format. Raises ValueError if the script fails."""
    with _idle_lock:
        if script in _images:
            return _images[script]
    image = _make(script)
    with _idle_lock:
        _images[script] = image
        while sum(map(len, _images.values())) > _IMAGES:
            del _images[next(iter(_images))]
    return image


def _make(script: str) -> bytes:
    with Database() as database:
        database._ask({"do": "make"}, script.encode("utf-8", "replace"))
        try:
            return database._connection.recv_bytes(_LARGEST)
        except (EOFError, OSError):
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

    def session(self) -> Connection:
        ours, theirs = socket.socketpair()
        with self.lock, theirs, ExitStack() as unwind:
            unwind.callback(ours.close)
            if self.process is None or self.process.poll() is not None or self.owner != os.getpid():
                self._start()
            assert self.control is not None
            socket.send_fds(self.control, [b"s"], [theirs.fileno()])
            unwind.pop_all()
        deadline = struct.pack("ll", sql_process.LONGEST + 10, 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, deadline)
        return Connection(ours.detach())

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
        try:
            ready = ours.recv(1) == b"r"
        except OSError:  # it took too long, or ended
            ready = False
        if not ready:
            ours.close()
            self.process.kill()
            self.process.wait()
            self.process = None
            raise SandboxError("the process for SQL cannot be started", hint=f"Try {' '.join(command[:-3])} yourself.")
        ours.settimeout(None)
        self.control, self.owner = ours, os.getpid()
        atexit.register(self.stop)

    def stop(self) -> None:
        if self.control is not None and self.owner == os.getpid():
            while _idle:
                _idle.pop()._connection.close()
            self.control.close()  # it ends with its socket, and so do its children
            self.control = None
            if self.process is not None:
                self.process.wait(5)


_zygote = _Zygote()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # the sessions are the parent's


def _open_session() -> Connection:
    if not hasattr(os, "fork"):
        raise SandboxError("SQL from models and rows needs a Unix system", hint="Use Linux, macOS or WSL.")
    return _zygote.session()

"""Lines to workers over sockets, for executors that start processes and carry no messages themselves.

The driver listens, and each worker joins it: `python -m workbench_workers.join HOST PORT NUMBER`, with the key in the
environment. Who connects without the key is refused (HMAC, `multiprocessing.connection`); what is sent is not
encrypted, so the network must be trusted.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from workbench.base.child_process import python_command
from workbench.base.concurrency import run_in_loop
from workbench_workers.messages import WorkerLost
from workbench_workers.worker import work

if TYPE_CHECKING:
    from workbench_workers.executor import WorkerSetup

#: Seconds in which who connects must have shown that it has the key.
GREETING = 20
#: The environment variable with the key, in hexadecimal digits.
KEY_VARIABLE = "WORKBENCH_WORKER_KEY"


class Sockets:
    """Where workers join the driver.

    host: under which they reach this machine. setup: what each is given first. key: without it nobody joins.
    """

    def __init__(self, host: str, setup: WorkerSetup):
        self.key = secrets.token_bytes(32)
        self._setup, self._listener, self._closed = setup, Listener((_place_of(host), 0), backlog=128), False
        self._host = host
        self._loop, self._waiting = asyncio.get_running_loop(), dict[int, asyncio.Future[Connection]]()
        threading.Thread(target=self._accept, name="workers", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that workers connect to."""
        return self._host, int(self._listener.address[1])

    def command(self, number: int) -> list[str]:
        """The command that joins as a worker, wherever this Python is. It needs `environment`."""
        host, port = self.address
        return python_command("-m", "workbench_workers.join", host, str(port), str(number))

    @property
    def environment(self) -> dict[str, str]:
        """The variable with the key."""
        return {KEY_VARIABLE: self.key.hex()}

    async def join(self, number: int, seconds: float, end: Callable[[], None] = lambda: None) -> SocketChannel:
        """Wait for a worker. end: ends its process. Raises WorkerLost."""
        joined = self._waiting[number] = self._loop.create_future()
        try:
            async with asyncio.timeout(seconds):
                return SocketChannel(await joined, self._setup, end)
        except TimeoutError:
            end()
            raise WorkerLost(f"worker {number} has not joined within {seconds:g} s") from None
        except asyncio.CancelledError:
            end()
            raise
        finally:
            self._waiting.pop(number, None)

    def _accept(self) -> None:
        while not self._closed:
            with suppress(OSError):
                connection = self._listener.accept()
                threading.Thread(target=self._check, args=(connection,), name="worker joins", daemon=True).start()

    def _check(self, connection: Connection) -> None:
        """Admit who has the key. Who connects and says nothing is not waited for: each would keep a thread."""
        try:
            _limit_waiting(connection, GREETING)
            deliver_challenge(connection, self.key)
            answer_challenge(connection, self.key)
            number = connection.recv()
            _limit_waiting(connection, 0)
            self._loop.call_soon_threadsafe(self._admit, number, connection)
        except (AuthenticationError, EOFError, OSError, RuntimeError):
            connection.close()

    def _admit(self, number: int, connection: Connection) -> None:
        joined = self._waiting.get(number)
        if joined is None or joined.done():
            connection.close()  # given up, or there twice
        else:
            joined.set_result(connection)

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        with suppress(OSError):  # wakes the thread that accepts
            socket.create_connection(("127.0.0.1", self.address[1]), timeout=1).close()
        self._listener.close()


def _place_of(host: str) -> str:
    """The address to listen at: only this machine's own, or all."""
    return host if host.startswith("127.") else ""


def _limit_waiting(connection: Connection, seconds: int) -> None:
    """Let reads from a connection, and writes to it, fail after so many seconds; 0: never."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


class _Ends:
    """An end of a line: threads that read and write, since both may block."""

    def __init__(self, connection: Connection):
        self._connection, self._loop = connection, asyncio.get_running_loop()
        self._came: asyncio.Queue[Any] = asyncio.Queue()
        self._going: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._read, name="line", daemon=True).start()
        self._writer = threading.Thread(target=self._write, name="line", daemon=True)
        self._writer.start()

    def _read(self) -> None:
        try:
            while True:
                self._tell(self._connection.recv())
        except Exception as error:
            self._tell(error)

    def _tell(self, what: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._came.put_nowait, what)

    def _write(self) -> None:
        with suppress(OSError):
            while (batch := self._going.get()) is not None:
                self._connection.send(batch)

    def put(self, batch: Sequence[Any]) -> None:
        self._going.put(batch)

    async def get(self) -> Sequence[Any]:
        """Wait for a batch. Raises ConnectionError once the other end is gone."""
        came = await self._came.get()
        if isinstance(came, Exception):
            self._came.put_nowait(came)
            raise ConnectionError(str(came) or type(came).__name__)
        return came

    async def drain(self, seconds: float) -> None:
        """Write what was put. What the other end does not take within so many seconds is lost."""
        self._going.put(None)
        await asyncio.to_thread(self._writer.join, seconds)

    def close(self) -> None:
        self._going.put(None)
        with suppress(OSError):
            self._connection.close()


class SocketChannel:
    """The driver's end of a line over a socket."""

    def __init__(self, connection: Connection, setup: WorkerSetup, end: Callable[[], None]):
        self._ends, self._end = _Ends(connection), end
        self._ends.put([setup])

    async def send(self, batch: Sequence[Any]) -> None:
        self._ends.put(batch)

    async def receive(self) -> Sequence[Any]:
        try:
            return await self._ends.get()
        except ConnectionError as error:
            raise WorkerLost(f"a worker closed its connection ({error})") from None

    async def aclose(self) -> None:
        self._ends.close()
        self._end()


class SocketLine:
    """The worker's end."""

    def __init__(self, connection: Connection):
        self._ends, self._queued = _Ends(connection), list[Any]()

    def send(self, message: Any) -> None:
        self._queued.append(message)
        if len(self._queued) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        batch, self._queued = self._queued, []
        if batch:
            self._ends.put(batch)

    async def receive(self) -> Sequence[Any]:
        return await self._ends.get()

    async def drain(self) -> None:
        """Send what was queued: the threads of the line end with the process, and would take the last word along."""
        self._flush()
        await self._ends.drain(GREETING)


def join_driver(host: str, port: int, number: int, key: bytes) -> None:
    """Join a driver as a worker, and run its rows until it is gone."""

    async def main() -> None:
        connection = Client((host, port), authkey=key)
        connection.send(number)
        line = SocketLine(connection)
        (setup,) = await line.receive()
        try:
            await work(setup, line)
        finally:
            await line.drain()

    run_in_loop(main())

"""Sessions with MCP servers on stdio: one for each server and row, each in its own thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from workbench.base.concurrency import run_in_thread
from workbench.base.distribution import pip_install
from workbench.base.text import visible
from workbench.errors import NodeError, SpecError
from workbench.spec import start_program
from workbench_kit.acting.programs import check_program, dying_with_us
from workbench_kit.wire import redact

T = TypeVar("T")

#: The SDK logs each server line that is no message, such as a greeting. Users did not ask for that.
logging.getLogger("mcp").addHandler(logging.NullHandler())
#: Seconds that a server gets to end: by itself, after SIGTERM, after SIGKILL.
_ENDING = 8.0
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
#: Error code for a lost connection. Errors with other codes come from the server.
_CLOSED = -32000
#: Number of characters of an error that are searched.
_TOLD = 10_000


def field_of(thing: Any, now: str, before: str) -> Any:
    """Return a field of an SDK object, whose names changed with version 2; None if it has none."""
    return getattr(thing, now, getattr(thing, before, None))


@dataclass(frozen=True)
class Server:
    """The start of a server: its command, working folder, and further environment variables, in which $NAME stands for
    one of ours."""

    command: tuple[str, ...]
    base: Path
    env: tuple[tuple[str, str], ...] = ()
    text: str = ""  # the command as written

    def __str__(self) -> str:
        return visible(shlex.join(self.command))

    def variables(self) -> tuple[tuple[str, str], ...]:
        """Return the further variables with their values. Raise SpecError for one of ours that is not set."""
        return tuple((name, fill_variables(text, "env")) for name, text in self.env)

    def redacted(self, text: str) -> str:
        """Redact keys and given variables from a server's message about a failure, which is shown and stored."""
        with suppress(SpecError):
            given = dict(self.variables())
            return redact(text, headers={name: given[name] for name, written in self.env if _VARIABLE.search(written)})
        return redact(text)


def fill_variables(text: str, setting: str) -> str:
    """Replace `$NAME` and `${NAME}` in a setting by the values of our environment. Raise SpecError."""

    def filled(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in os.environ:
            raise SpecError(
                f"the environment has no variable {name}, which `{setting}` names",
                hint=f"Set it: export {name}=...",
                path=(setting,),
            )
        return os.environ[name]

    return _VARIABLE.sub(filled, text)


class ServerSession:
    """A server that runs until it is closed, and ends with this process in any case."""

    def __init__(self, server: Server):
        start_program(server.text or shlex.join(server.command), server.base, now=True)
        self.server, self.broken, self._lock = server, False, threading.Lock()
        self._task: concurrent.futures.Future[asyncio.Task[Any]] = concurrent.futures.Future()
        self._ready: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._ended = threading.Event()
        self._said = tempfile.TemporaryFile()  # not the terminal, which escapes could control  # noqa: SIM115
        threading.Thread(target=self._run, name="workbench-mcp", daemon=True).start()

    def ask(self, request: Callable[[Any], Awaitable[T]], seconds: float | None) -> T:
        """Return the result of a request, a coroutine function of the session. Blocks.

        Raises TimeoutError, and the errors of the request or of the server's start.
        """
        until = None if seconds is None else time.monotonic() + seconds
        try:
            session = self._ready.result(_left(until))
            asked = asyncio.run_coroutine_threadsafe(_awaited(request, session), self._task.result().get_loop())
            return asked.result(_left(until))
        except concurrent.futures.CancelledError:
            self.close()
            raise NodeError("tool", "the server has ended") from None
        except BaseException as error:
            if not self._is_of_server(error):
                self.close()
            raise

    def _is_of_server(self, error: BaseException) -> bool:
        """Return True if a running server has reported an error."""
        code = getattr(getattr(error, "error", None), "code", None)
        return self._ready.done() and code is not None and code != _CLOSED

    def explain(self, error: BaseException) -> str:
        """Return why a request failed, and the server's output on stderr, in one line."""
        while isinstance(error, BaseExceptionGroup):  # anyio wraps errors of its tasks like this
            error = error.exceptions[0]
        cause = " ".join(self.server.redacted(str(error)[:_TOLD])[:500].split())
        with suppress(ValueError):  # closed
            size = os.fstat(self._said.fileno()).st_size
            # Not by seek: the server writes at the position of the file.
            tail = os.pread(self._said.fileno(), 1200, max(0, size - 1200)).decode(errors="replace")
            said = visible(" ".join(self.server.redacted(tail)[-300:].split()))
            return cause + (f"; it said: {said}" if said else "")
        return cause

    def close(self) -> None:
        """Start to end the server, without waiting."""
        with self._lock:
            if self.broken:
                return  # a second cancellation would interrupt the end
            self.broken = True
        with suppress(RuntimeError):  # it has ended already
            task = self._task.result()
            task.get_loop().call_soon_threadsafe(task.cancel)

    def wait(self) -> None:
        """Wait until the server has ended."""
        self._ended.wait(_ENDING)
        self._said.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error if isinstance(error, Exception) else NodeError("tool", "it was ended"))
        finally:
            self.broken = True
            self._ended.set()
            if not self._task.done():
                self._task.set_exception(RuntimeError("it never began"))

    async def _live(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task.set_result(task)
        async with AsyncExitStack() as stack:
            session = await _open(self.server, self._said, stack)
            self._ready.set_result(session)
            await asyncio.Event().wait()  # until it is cancelled


async def _awaited(request: Callable[[Any], Awaitable[T]], session: Any) -> T:
    return await request(session)


async def _open(server: Server, said: IO[bytes], stack: AsyncExitStack) -> Any:
    try:
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import get_default_environment, stdio_client
    except ImportError:
        raise NodeError("tool", f"MCP tools need: {pip_install('kit[mcp]')}") from None

    class Client(ClientSession):
        """Does not request the list of tools in each session, only to check results by it."""

        async def validate_tool_result(self, name: str, result: Any) -> None: ...

        async def _validate_tool_result(self, name: str, result: Any) -> None: ...

    first, *rest = server.command
    program, env = sys.executable if first == "python" else first, dict(server.variables())
    check_program(program, server.base, {**get_default_environment(), **env})
    command = [*dying_with_us(), program, *rest]
    parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=str(server.base), env=env or None)
    read, write = await stack.enter_async_context(stdio_client(parameters, errlog=said))  # type: ignore[arg-type]
    session = await stack.enter_async_context(Client(read, write))
    await session.initialize()
    return session


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


class RowSessions:
    """The sessions of one row. The first call of a server opens its session.

    A session that begins late, because the row was resumed or the server broke, first repeats the row's earlier calls,
    to bring the server into the same state.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Server, ServerSession] = {}
        self._all: list[ServerSession] = []
        self._made: dict[Server, list[tuple[str, Mapping[str, Any]]]] = {}
        self._over = False

    def note(self, server: Server, name: str, arguments: Mapping[str, Any]) -> None:
        """Remember a call that returned a result, now or in an earlier run of the row. Failed calls are not repeated:
        they may have hung."""
        self._made.setdefault(server, []).append((name, arguments))

    def call(self, server: Server, name: str, arguments: Mapping[str, Any], seconds: float | None) -> Any:
        """Call a tool of the server and return its result. Blocks. Raises TimeoutError and NodeError("tool")."""
        until = None if seconds is None else time.monotonic() + seconds
        return _call(self._session(server, name, until), name, name, arguments, until)

    def _session(self, server: Server, name: str, until: float | None) -> ServerSession:
        if not self._lock.acquire(timeout=-1 if until is None else _left(until) or 0.0):
            raise TimeoutError
        try:
            if self._over:
                raise NodeError("tool", f"{name}: the row has ended")
            session = self._open.get(server)
            if session is None or session.broken:
                session = self._open[server] = ServerSession(server)
                self._all.append(session)
                try:
                    for earlier, given in self._made.get(server, ()):
                        _call(session, name, earlier, given, until)
                except BaseException:
                    session.close()  # it is not in the earlier state
                    raise
            return session
        finally:
            self._lock.release()

    def close(self) -> None:
        """End all servers. Blocks until they have ended."""
        self._over = True
        for session in self._all:
            session.close()
        for session in self._all:
            session.wait()

    async def aclose(self) -> None:
        """End all servers."""
        self._over = True
        if self._all:
            with suppress(TimeoutError):
                await run_in_thread(self.close, _ENDING)


def _call(session: ServerSession, tool: str, name: str, arguments: Mapping[str, Any], until: float | None) -> Any:
    """Call a tool in a session. tool: the name in errors."""
    try:
        return session.ask(lambda client: client.call_tool(name, dict(arguments)), _left(until))
    except (TimeoutError, SpecError):
        raise
    except Exception as error:
        raise NodeError("tool", f"{tool}: {session.explain(error)}") from error


_sessions: ContextVar[RowSessions | None] = ContextVar("mcp_sessions", default=None)


def current_sessions() -> RowSessions | None:
    """Return the sessions of the row whose tool is called."""
    return _sessions.get()


@contextmanager
def in_sessions(sessions: RowSessions) -> Generator[None]:
    """Call tools in these sessions inside the `with` block."""
    token = _sessions.set(sessions)
    try:
        yield
    finally:
        _sessions.reset(token)

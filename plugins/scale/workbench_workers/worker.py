"""The worker's half of an executor: rows run here, and whatever they want to send or run, the driver is asked first.

A worker keeps no journal and no budget. What it was told is in the driver's journal; so a worker may end at any moment.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from workbench._version import __version__
from workbench.base.files import file_digest
from workbench.errors import LMError
from workbench.ledger import Ledger, Recalled, Settled, current_row
from workbench.lm import LM, LMPool, Request, Response
from workbench.plugins import plugins
from workbench.runtime import Program, Runtime, Sandbox
from workbench.spec import LMSpec
from workbench.store import dumps
from workbench.workflow import Workflow
from workbench_workers.messages import (
    Alive,
    Call,
    Came,
    CancelRow,
    Effect,
    End,
    Ended,
    Gone,
    Order,
    Ran,
    Ready,
    Recall,
    Refused,
    Reply,
    RowEnded,
    RunRow,
    SandboxOpened,
    pack_outcome,
    portable,
)
from workbench_workers.worker_pool import OfDriver, WorkerPool

if TYPE_CHECKING:
    from workbench_workers.executor import Line, WorkerSetup

#: Seconds between two signs of life.
PULSE = 5.0


async def work(setup: WorkerSetup, line: Line) -> None:
    """Run rows for a driver until it closes the line. What this machine lacks is said by name, and nothing is run."""
    os.environ.update(setup.secrets)
    if missing := find_missing(setup):
        line.send(Refused(f"{socket.gethostname()}: {missing}"))
        return
    worker = _Worker(setup, line)
    line.send(Ready(f"{socket.gethostname()} (pid {os.getpid()})", os.getpid()))
    pulse = asyncio.create_task(worker.beat())
    try:
        with suppress(ConnectionError):
            while not worker.ending:
                for message in await line.receive():
                    worker.take(message)
    finally:
        pulse.cancel()
        await worker.aclose()
    line.send(Ended())


def find_missing(setup: WorkerSetup) -> str:
    """Find what this machine lacks for a setup; returns a sentence, empty if it lacks nothing."""
    if setup.version != __version__:
        return f"it has workbench {__version__}, and the driver {setup.version}: install the same there"
    here = {info.name: info.version for info in plugins().infos if info.error is None}
    for name, version in setup.plugins.items():
        if here.get(name) != version:
            return f"the plugin '{name}' {version} is {here.get(name, 'not installed')} there"
    for path, digest in setup.files.items():
        found = setup.base / path
        if not found.is_file():
            return f"the file {found} is not there: share the folder, or let the executor ship it"
        if file_digest(found) != digest:
            return f"the file {found} is another one there: share the folder, or let the executor ship it"
    return ""


class _Question:
    """A question to the driver, and what follows from it, under one number."""

    def __init__(self, worker: _Worker):
        self._worker, self.number = worker, next(worker.numbers)

    async def ask(self, kind: Callable[..., Any], *values: Any) -> Any:
        """Ask, and return the reply. Raises the driver's error."""
        worker = self._worker
        reply = worker.waiting[self.number] = asyncio.get_running_loop().create_future()
        worker.line.send(kind(current_row.get(), self.number, *values))
        try:
            return await reply
        finally:
            del worker.waiting[self.number]

    def __enter__(self) -> _Question:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is asyncio.CancelledError:
            self._worker.line.send(Gone(current_row.get(), self.number))


class LedgerClient:
    """The driver's ledger, as rows of a worker see it."""

    recorded = resumed = True

    def __init__(self, question: Callable[[], _Question]):
        self.question = question
        self.stopping: BaseException | None = None  # what the driver's ledger raised to end the run

    async def send(
        self, lm: LM, request: Request, role: str, spec: LMSpec, *, vectors: bool = False
    ) -> tuple[Response, Settled]:
        """Ask for a call, and send it as often as the driver says so. The driver calls its own models itself."""
        native = request.native and replace(request.native, convert=None, restored=_nothing_restored)
        asked = replace(request, native=native, pieces=None)
        with self.question() as question:
            came: Response | None = None
            reply = await question.ask(Call, asked, role, spec, lm.identity, vectors, request.pieces is not None)
            while reply is Order.SEND:
                begun = time.monotonic()
                came, error = await _attempt(lm, request, spec)
                streaming = request.pieces is not None and request.pieces.source.begun
                reply = await question.ask(Came, came, error, time.monotonic() - begun, streaming)
        response, settled = reply
        response = came if response is None else response
        assert response is not None
        return response, replace(settled, response=response)

    async def effect(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]], *, shared: bool = False) -> Any:
        """As `Ledger.effect`. shared: as `Runtime.shared_effect`."""
        with self.question() as question:
            reply = await question.ask(Effect, kind, content, shared)
            if reply is Order.RUN:
                try:
                    result = dumps(await run())
                except Exception as error:
                    with suppress(Exception):
                        await question.ask(Ran, None, portable(error))
                    raise
                reply = await question.ask(Ran, result)
        return reply

    async def recall(self, key: str, role: str) -> Recalled:
        """As `Ledger.recall`."""
        with self.question() as question:
            return await question.ask(Recall, key, role)


async def _attempt(lm: LM, request: Request, spec: LMSpec) -> tuple[Response | None, LMError | None]:
    """Send once."""
    try:
        async with asyncio.timeout(spec.timeout):
            return await lm.complete(request), None
    except TimeoutError:
        return None, LMError("timeout", f"no full answer within {spec.timeout:g} s")
    except LMError as error:
        return None, cast(LMError, portable(error))
    except Exception as error:  # a provider's bug is one failed call, not the end of the worker
        return None, LMError("provider", f"{type(error).__name__}: {error}")


def _nothing_restored(body: Mapping[str, Any]) -> None:
    return None


class WorkerRuntime(Runtime):
    """The shared state of a worker's rows."""

    def __init__(self, setup: WorkerSetup, ledger: LedgerClient, pool: LMPool):
        # What rows need of a ledger, a worker's has; the rest of it is the driver's.
        super().__init__(
            cast(Ledger, ledger), setup.lm, setup.roles, pool, setup.policy, None, setup.sandbox, setup.timeout
        )
        self._asked, self.data_files = ledger, setup.data_files

    async def complete(self, spec: LMSpec, request: Request, role: str) -> tuple[Response, Settled]:
        return await self._asked.send(self.pool.get(spec), self.fit(spec, request), role, spec)

    async def shared_effect(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        return await self._asked.effect(kind, content, run, shared=True)

    async def pay_vectors(self, lm: LM, request: Request, role: str, spec: LMSpec) -> Settled:
        return (await self._asked.send(lm, request, role, spec, vectors=True))[1]

    async def agree_on_level(self, opened: Sandbox) -> None:
        with self._asked.question() as question:
            await question.ask(SandboxOpened, opened.name, opened.level)


class _Worker:
    """The rows of this process, and what waits for the driver."""

    def __init__(self, setup: WorkerSetup, line: Line):
        self.line, self.numbers = line, itertools.count(1)
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self._base, self._pool = setup.base, WorkerPool()
        self._ledger = LedgerClient(lambda: _Question(self))
        self._runtime = WorkerRuntime(setup, self._ledger, self._pool)
        self._programs: dict[str, Program] = {}
        self._rows: dict[int, asyncio.Task[None]] = {}
        self.ending = False  # the driver has no more rows

    def take(self, message: RunRow | CancelRow | Reply | End) -> None:
        """Do what the driver says."""
        if isinstance(message, Reply):
            self._take_reply(message)
        elif isinstance(message, RunRow):
            self._rows[message.row] = asyncio.create_task(self._run(message))
        elif isinstance(message, End):
            self.ending = True
        elif (row := self._rows.get(message.row)) is not None:
            row.cancel()

    def _take_reply(self, reply: Reply) -> None:
        waiting = self.waiting.get(reply.number)
        if waiting is None or waiting.done():
            return
        if reply.error is None:
            waiting.set_result(reply.value)
            return
        error, known = reply.error, self._ledger.stopping
        if reply.stops:  # one object for all rows, as in the driver: `ends_run` asks which it is
            error = self._ledger.stopping = known if known is not None and type(known) is type(error) else error
        waiting.set_exception(error)

    async def _run(self, message: RunRow) -> None:
        current_row.set(message.row)
        began, outcome, error = time.time(), None, None
        try:
            outcome = pack_outcome(await self._program(message).run(message.example, message.draw))
        except asyncio.CancelledError:
            return
        except BaseException as failure:
            error = portable(failure)
        finally:
            self._rows.pop(message.row, None)
        said, kept = self._runtime.warnings(), self._runtime.kept_state()
        self.line.send(RowEnded(message.row, outcome, error, began, said, kept))

    def _program(self, message: RunRow) -> Program:
        for key, facts in (message.models or {}).items():
            self._pool.of_driver[key] = OfDriver(facts)
        if message.tree is not None:
            workflow = Workflow(dict(message.tree), self._base)
            self._programs[message.workflow] = Program(workflow, self._runtime)
        return self._programs[message.workflow]

    async def beat(self) -> None:
        """Give signs of life."""
        while True:
            await asyncio.sleep(PULSE)
            self.line.send(Alive())

    async def aclose(self) -> None:
        """End all rows, and close what they share."""
        rows = [*self._rows.values()]
        for row in rows:
            row.cancel()
        await asyncio.gather(*rows, return_exceptions=True)
        await self._runtime.aclose()

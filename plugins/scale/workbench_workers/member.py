"""A worker as its driver sees it: the rows that are leased to it, and its questions, each of which is paid here.

A worker that is lost takes its calls in flight with it: they are recorded with an unknown outcome, as at a kill. Its
rows run again elsewhere, and the journal answers what was answered before.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import time
from typing import TYPE_CHECKING, Any

from workbench.errors import SpecError
from workbench.lm import LM, Pieces, Response
from workbench.runtime import Draw, Embeddings, Runtime
from workbench.task import Example
from workbench.workflow import ExampleRun, Trace, Workflow, called_lms
from workbench_workers.messages import (
    Call,
    Came,
    CancelRow,
    Effect,
    End,
    Ended,
    Gone,
    Order,
    Question,
    Ran,
    Ready,
    Recall,
    Refused,
    Reply,
    RowEnded,
    RunRow,
    WorkerLost,
    portable,
    unpack_outcome,
)
from workbench_workers.sent_there import SentThere, facts_of, is_of_driver

if TYPE_CHECKING:
    from workbench_workers.executor import Channel

#: Seconds without a sign of life, which comes every few, after which a worker is taken for lost.
LEASE = 60.0
#: Looks within a lease. A driver that did nothing itself for long, e.g. since it was suspended, has missed one only.
_LOOKS = 6
#: Seconds that a worker has to close what its rows shared, before it is killed.
FAREWELL = 5.0


@dataclass
class _Row:
    """A row that is leased to a worker. context: of who waits for it."""

    ended: asyncio.Future[RowEnded]
    context: contextvars.Context
    sent: float


class Member:
    """A worker.

    Attributes:
        name: its machine and process, once it is ready.
        rows: those that it has, by number.
        in_flight: requests that it has sent and not told the outcome of.
        held: for one row alone.
    """

    def __init__(self, channel: Channel, runtime: Runtime):
        self.name, self.rows, self.in_flight, self.held = "", dict[int, _Row](), 0, False
        self._channel, self._runtime = channel, runtime
        self._known: set[str] = set()  # hashes of workflows that it has
        self._mine: set[str] = set()  # keys of models that it leaves to the driver, for good
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._ordered: dict[int, asyncio.Future[Came | Ran]] = {}
        self._outbox: list[Any] = []
        self._posted = asyncio.Event()
        self._gone: WorkerLost | None = None

    async def greet(self) -> None:
        """Wait for its first word. Raises WorkerLost, and SpecError if its machine lacks something."""
        for word in await self._hear():
            if isinstance(word, Refused):
                raise SpecError(word.reason)
            if isinstance(word, Ready):
                self.name = word.worker

    @property
    def is_lost(self) -> bool:
        return self._gone is not None

    async def run(self, number: int, workflow: Workflow, example: Example, draw: Draw) -> tuple[ExampleRun, RowEnded]:
        """Run a row there. Raises WorkerLost, and what ended the row besides a failure of its own."""
        if self._gone is not None:
            raise self._gone
        ended = asyncio.get_running_loop().create_future()
        row = self.rows[number] = _Row(ended, contextvars.copy_context(), time())
        try:
            self._post(self._order_of(number, workflow, example, draw))
            told = await ended
        except asyncio.CancelledError:
            self._post(CancelRow(number))
            raise
        finally:
            del self.rows[number]
        if told.error is not None:
            raise told.error
        assert told.outcome is not None
        outcome = unpack_outcome(told.outcome, example.id)
        _shift(outcome.trace, row.sent - told.began)
        return outcome, told

    def _order_of(self, number: int, workflow: Workflow, example: Example, draw: Draw) -> RunRow:
        name = workflow.hash
        if name in self._known:
            return RunRow(number, name, example, draw)
        self._known.add(name)
        pool = self._runtime.pool
        specs = [*called_lms(workflow, self._runtime.lm), *self._runtime.roles.values()]
        mine = {pool.key(spec): facts_of(pool.get(spec)) for spec in specs if is_of_driver(pool, spec)}
        self._mine |= mine.keys()
        return RunRow(number, name, example, draw, workflow.tree, mine)

    # The line

    async def serve(self) -> None:
        """Answer its questions until it is lost. Raises WorkerLost."""
        sender = asyncio.create_task(self._send())
        try:
            while True:
                for message in await self._hear():
                    self._take(message)
        except WorkerLost as lost:
            self._lose(lost)
            raise
        finally:
            sender.cancel()

    async def _hear(self) -> Sequence[Any]:
        for _ in range(_LOOKS):
            with suppress(TimeoutError):
                async with asyncio.timeout(LEASE / _LOOKS):
                    return await self._channel.receive()
        raise WorkerLost(f"{self.name or 'a worker'}: nothing was heard of it for {LEASE:g} s")

    async def _send(self) -> None:
        with suppress(WorkerLost):  # which the receiver tells
            while True:
                await self._posted.wait()
                self._posted.clear()
                batch, self._outbox = self._outbox, []
                await self._channel.send(batch)

    def _post(self, message: Any) -> None:
        self._outbox.append(message)
        self._posted.set()

    def _lose(self, lost: WorkerLost) -> None:
        if self._gone is not None:
            return
        self._gone = lost
        for task in self._asking.values():
            task.cancel()
        for row in self.rows.values():
            if not row.ended.done():
                row.ended.set_exception(lost)

    async def aclose(self) -> None:
        """End the worker. Rows that it still has are lost."""
        there = self.name and not self.is_lost
        self._lose(WorkerLost(f"{self.name} was closed"))
        try:
            await asyncio.gather(*self._asking.values(), return_exceptions=True)
            if there:
                await self._take_leave()
        finally:
            await self._channel.aclose()

    async def _take_leave(self) -> None:
        """Let it close what its rows shared: servers, sandboxes, folders, of which a killed worker would leave some."""
        with suppress(WorkerLost, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self._channel.send([End()])
                while not any(isinstance(word, Ended) for word in await self._channel.receive()):
                    pass

    # Its questions

    def _take(self, message: Any) -> None:
        if isinstance(message, RowEnded):
            row = self.rows.get(message.row)
            if row is not None and not row.ended.done():
                row.ended.set_result(message)
        elif isinstance(message, Came | Ran):
            waiting = self._ordered.get(message.number)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif isinstance(message, Gone):
            if (task := self._asking.get(message.number)) is not None:
                task.cancel()
        elif isinstance(message, Question):
            row = self.rows.get(message.row)  # a server that rows share may ask for none of them
            context = row.context if row is not None else contextvars.copy_context()
            loop = asyncio.get_running_loop()
            self._asking[message.number] = loop.create_task(self._answer(message), context=context)

    async def _answer(self, question: Question) -> None:
        try:
            self._post(Reply(question.number, await self._work_of(question)))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._post(Reply(question.number, None, portable(error), error is self._runtime.ledger.stopping))
        finally:
            self._asking.pop(question.number, None)

    def _work_of(self, question: Question) -> Coroutine[Any, Any, Any]:
        if isinstance(question, Call):
            return self._pay(question)
        if isinstance(question, Effect):
            return self._effect(question)
        if isinstance(question, Recall):
            return self._runtime.ledger.recall(question.key, question.role)
        return self._note_sandbox(question.name, question.level)

    async def _note_sandbox(self, name: str, level: str) -> None:
        self._runtime.note_sandbox(name, level)

    async def _pay(self, call: Call) -> tuple[Response | None, Any]:
        runtime, request = self._runtime, call.request
        mine = is_of_driver(runtime.pool, call.spec) or bool(self._mine and runtime.pool.key(call.spec) in self._mine)
        lm: LM = Embeddings(runtime.pool.get(call.spec)) if call.vectors else runtime.pool.get(call.spec)
        if not mine and lm.identity != call.identity:  # else its answers, and its key, would be another server's
            raise SpecError(
                f"{self.name} would ask {call.identity}, and the driver {lm.identity}",
                hint="Name the environment variables that differ under `env` of the executor, or share the weights.",
                path=("executor",),
            )
        if call.streamed:
            request = replace(request, pieces=Pieces())
        sent = SentThere(self.name, lambda: self._send_there(call.number))
        if call.vectors:
            settled = await runtime.ledger.call(lm if mine else sent.for_model(lm), request, call.role, call.spec)
            if settled.error is not None:
                raise settled.error
            response = settled.response
        else:
            sender = None if mine else sent.for_model
            response, settled = await runtime.complete(call.spec, request, call.role, sender)
        return None if response is sent.response else response, replace(settled, response=None)

    async def _effect(self, effect: Effect) -> Any:
        async def run() -> Any:
            ran = await self.order(effect.number, Order.RUN)
            assert isinstance(ran, Ran)
            if ran.error is not None:
                raise ran.error
            return json.loads(ran.result or "null")

        runtime = self._runtime
        return await (runtime.shared_effect if effect.shared else runtime.ledger.effect)(
            effect.kind, effect.content, run
        )

    async def _send_there(self, number: int) -> Came:
        self.in_flight += 1
        try:
            came = await self.order(number, Order.SEND)
            assert isinstance(came, Came)
            return came
        finally:
            self.in_flight -= self._gone is None

    async def order(self, number: int, order: Order) -> Came | Ran:
        """Give an order in reply to a question, and wait for the outcome."""
        came = self._ordered[number] = asyncio.get_running_loop().create_future()
        try:
            self._post(Reply(number, order))
            return await came
        finally:
            del self._ordered[number]


def _shift(trace: Trace, seconds: float) -> None:
    """Move the times of a trace from the worker's clock to the driver's."""
    for span in trace.spans:
        for timed in (span, *span.calls, *span.effects):
            timed.began += seconds

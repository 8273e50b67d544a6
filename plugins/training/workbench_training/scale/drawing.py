"""All processes of a training draw: what waits for the generator of the first is spread over them.

Each has the same weights to the last bit, and a row of a batch has its own random numbers. So which process draws a row
changes it only as its batch does: by rounding. The first process keeps all that is remembered of calls (conversations,
journal, ledger): prompts go out as token ids, and token ids come back with their log-probabilities.

A static batch is cut into equal parts, whose rows come back together. Which part a process gets does not depend on what
is faster, so two runs on equally many processes agree to the last bit. With continuous batching each call goes to the
process that has the fewest, and joins what it is drawing.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from workbench.errors import LMError
from workbench.lm import Request, Response
from workbench_engine.generation import Generator, Refill, Row, generate_within_memory, group_by_length
from workbench_kit.lms.batching import BatchThread
from workbench_kit.lms.native_calls import check_format, check_tools
from workbench_training.scale import orders
from workbench_training.serving.policy_lm import CONCURRENCY, LocalEngine, generate_static

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy
    from workbench_training.serving.policy_lm import Engine


#: Seconds that a process waits for more calls before it begins with a new batch.
WAIT = 0.002


# What is sent


class _Asked(NamedTuple):
    """Rows to complete. keys: of their answers; a single one for a static batch."""

    keys: list[int]
    rows: list[tuple[Any, ...]]
    static: bool


def _pack(row: Row) -> tuple[Any, ...]:
    return row.prompt_ids, row.max_tokens, row.temperature, row.top_p, row.stop, row.seed


class _Drawn(NamedTuple):
    """The tokens that were generated for one of the rows asked for. error: (kind of an LMError, message)."""

    place: int
    ids: list[int]
    logprobs: list[float]
    text: str
    finish: str
    error: tuple[str, str] | None

    @classmethod
    def of(cls, place: int, row: Row) -> _Drawn:
        error = row.error and (str(getattr(row.error, "kind", "provider")), str(row.error))
        return cls(place, row.ids, row.logprobs, row.text, row.finish, error or None)

    def fill(self, row: Row) -> Row:
        row.ids, row.logprobs, row.text, row.finish = self.ids, self.logprobs, self.text, self.finish
        row.error = LMError(*self.error) if self.error else None
        return row


def cut_batch(rows: Sequence[Row], parts: int) -> list[list[Row]]:
    """A batch in parts of equal size. Equal prompts, which are computed once, and those of similar length stay
    together."""
    found = sorted(rows, key=lambda row: (len(row.prompt_ids), row.prompt_ids))
    sizes = [(len(rows) + parts - 1 - i) // parts for i in range(parts)]
    return [[found.pop() for _ in range(size)] for size in sizes]


# In the first process


class Remote:
    """Another process, as the first one sees it."""

    def __init__(self, rank: int):
        self.rank = rank
        self._waiting: dict[int, tuple[Sequence[Row], Future[list[Row]]]] = {}  # by key
        self._sent, self._lock, self._count = threading.Semaphore(0), threading.Lock(), 0
        self._thread: threading.Thread | None = None
        self._lost: Exception | None = None

    def draw(self, number: int, rows: Sequence[Row], futures: Sequence[Future[list[Row]]], *, static: bool) -> None:
        """Have rows completed with the policy of this number. There is a future for each row; for a static batch one,
        which holds them as they were complete. It raises what was raised there, or ProcessDied."""
        parts = [rows] if static else [[row] for row in rows]
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._receive, name=f"workbench-rank-{self.rank}", daemon=True)
                self._thread.start()
            keys = [self._count + i for i in range(len(parts))]
            self._count += len(parts)
            self._waiting.update(zip(keys, zip(parts, futures, strict=True), strict=True))
        try:
            if self._lost is not None:
                raise self._lost
            orders.tell("draw", self.rank, number, _Asked(keys, list(map(_pack, rows)), static))
        except Exception as error:
            for key in keys:
                if self._waiting.pop(key, None) is not None:
                    futures[key - keys[0]].set_exception(error)
        else:
            self._sent.release(len(keys))

    def wait(self) -> None:
        """Wait until all that was sent is answered, or the process died: a thread that still receives when this process
        ends would abort it."""
        with self._lock:
            waiting = [future for _, future in self._waiting.values()]
        wait(waiting)

    def _receive(self) -> None:
        """An answer for each order: only then does a wait for one tell that the process died."""
        while True:
            self._sent.acquire()
            try:
                key, drawn, error = orders.receive(self.rank)
            except Exception as lost:
                self._lost = lost
                while self._waiting:
                    self._waiting.popitem()[1][1].set_exception(lost)
                return
            rows, future = self._waiting.pop(key)
            if error is not None:
                future.set_exception(RuntimeError(f"process {self.rank}: {error}"))
            else:
                future.set_result([one.fill(rows[one.place]) for one in drawn])


class _Sender(BatchThread[Request, list[Row]]):
    """Sends another process what is asked for at a time in one order."""

    def __init__(self, engine: SpreadEngine, remote: Remote):
        super().__init__(CONCURRENCY)
        self.engine, self.remote = engine, remote

    def _serve(self, batch: list[tuple[Request, Future[list[Row]]]]) -> None:
        rows, futures = list[Row](), list[Future[list[Row]]]()
        for request, future in batch:
            try:
                rows.append(self.engine._make_row(request))
            except Exception as error:
                future.set_exception(error)
            else:
                futures.append(future)
        number = self.engine.policy.number
        assert number is not None
        if rows:
            self.remote.draw(number, rows, futures, static=False)


_remotes: list[Remote] = []


def find_remotes() -> list[Remote]:
    """The other processes."""
    if len(_remotes) != dist.get_world_size() - 1:
        _remotes[:] = [Remote(rank) for rank in range(1, dist.get_world_size())]
    return _remotes


class SpreadEngine(LocalEngine):
    """Draws with the weights of all processes, as soon as a learner leads those of the policy; before that, alone.

    lost: done once another process has died. Calls that waited for it then stay without an answer until they are
    cancelled, so that the journal takes none of them for a failure of the workflow.
    """

    def __init__(
        self, policy: Policy, version: int = 0, max_batch: int | None = None, *, continuous: bool | None = None
    ):
        """max_batch: of all processes together; by default as many for each as for one alone."""
        self.remotes = find_remotes()
        most = max_batch or CONCURRENCY * (1 + len(self.remotes))
        super().__init__(policy.generator, version, most, continuous=continuous)
        self.policy, self.lost = policy, Future[orders.ProcessDied]()
        self._flying = [0] * (1 + len(self.remotes))  # calls of each process
        self._senders = [_Sender(self, remote) for remote in self.remotes]
        self._making = threading.Lock()

    async def complete(self, request: Request) -> Response:
        try:
            if not self.continuous or self.policy.number is None:
                return await super().complete(request)
            return await self._complete_somewhere(request)
        except orders.ProcessDied as error:
            if not self.lost.done():
                self.lost.set_result(error)
            return await asyncio.get_running_loop().create_future()

    async def _complete_somewhere(self, request: Request) -> Response:
        rank = min(range(len(self._flying)), key=self._flying.__getitem__)
        self._flying[rank] += 1
        try:
            if rank == 0:
                return await super().complete(request)
            check_format(request)
            check_tools(request, self.generator.tokenizer)
            (row,) = await self._senders[rank - 1].submit(request)
            response = self._response(row, request)
            if isinstance(response, Exception):
                raise response
            return response
        finally:
            self._flying[rank] -= 1

    def _make_row(self, request: Request) -> Row:
        with self._making:  # several threads do, and a tokenizer is not for that
            return super()._make_row(request)

    def _generate(self, rows: list[Row]) -> list[Row]:
        number = self.policy.number
        if number is None:
            return super()._generate(rows)
        own, *others = cut_batch(rows, len(self._flying))
        sent: list[Future[list[Row]]] = []
        for remote, part in zip(self.remotes, others, strict=True):
            if part:
                sent.append(Future())
                remote.draw(number, part, sent[-1:], static=True)
        return [*super()._generate(own), *(row for drawing in sent for row in drawing.result())]

    async def aclose(self) -> None:
        await super().aclose()
        for sender in self._senders:
            await sender.aclose()
        for remote in self.remotes:
            await asyncio.to_thread(remote.wait)


async def unless_one_dies(schedule: Coroutine[Any, Any, None], engines: Iterable[Engine]) -> None:
    """Await a training. Raises ProcessDied, having cancelled it, where an engine has lost a process."""
    lost = [asyncio.wrap_future(engine.lost) for engine in engines if isinstance(engine, SpreadEngine)]
    if not lost:
        return await schedule
    task = asyncio.ensure_future(schedule)
    try:
        await asyncio.wait([task, *lost], return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    for one in lost:
        if one.done():
            raise one.result()
    task.result()


# In the other processes


class Drawer:
    """Completes rows with one policy's weights, in a thread of its own, and sends them to the first process."""

    def __init__(self, generator: Generator):
        self.generator = generator
        self._device = torch.cuda.current_device() if generator.device.type == "cuda" else None
        self._queue: queue.Queue[_Asked | None] = queue.Queue()
        self._changed, self._open = threading.Condition(), 0  # how many are not yet answered
        self._thread = threading.Thread(target=self._run, name="workbench-drawer", daemon=True)
        self._thread.start()

    def draw(self, asked: _Asked) -> None:
        """Begin to complete rows, and do not wait."""
        with self._changed:
            self._open += len(asked.keys)
        self._queue.put(asked)

    def finish(self) -> None:
        """Wait until all that was asked for is answered. Raises RuntimeError if the first process cannot be reached."""
        with self._changed:
            while self._open:
                if not self._thread.is_alive():
                    raise RuntimeError("what was drawn could not be sent to the first process")
                self._changed.wait(1.0)

    def close(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        if self._device is not None:
            torch.cuda.set_device(self._device)  # of this thread
        while (asked := self._queue.get()) is not None:
            taken = set(asked.keys)
            try:
                if asked.static:
                    self._draw_batch(taken, asked)
                else:
                    self._draw_joined(taken, asked)
            except Exception as error:
                for key in list(taken):
                    self._answer(taken, key, error=f"{type(error).__name__}: {error}")

    def _answer(self, taken: set[int], key: int, drawn: Sequence[_Drawn] = (), error: str | None = None) -> None:
        orders.answer(key, list(drawn), error)
        taken.remove(key)
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _draw_batch(self, taken: set[int], asked: _Asked) -> None:
        rows = [Row(*fields) for fields in asked.rows]
        places = {id(row): i for i, row in enumerate(rows)}
        complete = generate_static(self.generator, rows)
        self._answer(taken, asked.keys[0], [_Drawn.of(places[id(row)], row) for row in complete])

    def _draw_joined(self, taken: set[int], first: _Asked) -> None:
        """Rows, those that wait with them, and those that are asked for while these are drawn."""
        keys: dict[int, int] = {}  # by the identity of a row

        def make_rows(found: list[_Asked]) -> list[Row]:
            rows = [Row(*fields) for asked in found for fields in asked.rows]
            asked_keys = [key for asked in found for key in asked.keys]
            taken.update(asked_keys)
            keys.update(zip(map(id, rows), asked_keys, strict=True))
            return rows

        def give(row: Row) -> None:
            self._answer(taken, keys.pop(id(row)), [_Drawn.of(0, row)])

        waiting = group_by_length(make_rows([first, *self._waiting(WAIT)]))

        def join(running: int) -> list[Row]:
            found = [row for group in waiting for row in group]
            waiting.clear()
            return found + make_rows(self._waiting())

        while waiting:
            generate_within_memory(self.generator, waiting.pop(), Refill(join, give))

    def _waiting(self, wait: float = 0.0) -> list[_Asked]:
        """Collect what else was asked for, until nothing more comes within so many seconds."""
        found: list[_Asked] = []
        while True:
            try:
                asked = self._queue.get(timeout=wait) if wait else self._queue.get_nowait()
            except queue.Empty:
                return found
            if asked is None:  # closed, which `_run` must see
                self._queue.put(None)
                return found
            found.append(asked)

"""Dynamic batchers for models in this process: concurrent calls are served as one batch."""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from workbench.lm import Request

Item = TypeVar("Item")
Result = TypeVar("Result")


#: Number of times that a queue must be found empty before a batch starts, with a turn of the callers' loop between two;
#: and timeout in seconds for such a turn.
_TURNS, _LONGEST_TURN = 3, 1.0
#: Seconds during which calls may join a batch.
_WAIT = 0.002


class BatchThread(Generic[Item, Result]):
    """A daemon thread that serves waiting items in batches of at most `max_batch`. It starts with the first call.

    A batch starts after _WAIT seconds without new items, once the callers' event loop is idle, so that concurrent calls
    join it even on a loaded machine: the batch of a call changes its last bits.
    """

    def __init__(self, max_batch: int):
        self._max_batch = max_batch
        # Not SimpleQueue: with a timeout its `get` was seen to wait forever (CPython 3.11.7, on a loaded machine).
        self._queue: queue.Queue[tuple[Item, Future[Result]] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def submit(self, item: Item) -> Result:
        """Wait for the item's result. Cancelling removes the item from the queue, but not from a running batch."""
        future: Future[Result] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("this batcher is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="workbench-batcher", daemon=True)
                self._thread.start()
            self._loop = asyncio.get_running_loop()
            self._queue.put((item, future))
        return await asyncio.wrap_future(future)

    async def aclose(self) -> None:
        """Finish the running batch, fail waiting calls with a RuntimeError, and end the thread."""
        with self._lock:
            self._closed, thread = True, self._thread
            self._queue.put(None)
        if thread is not None:
            await asyncio.to_thread(thread.join)

    def _run(self) -> None:
        while True:
            batch, ended = self._collect()
            # From here on a call can no longer be cancelled, so that setting its result cannot fail.
            batch = [(item, future) for item, future in batch if future.set_running_or_notify_cancel()]
            if self._closed:
                for _, future in batch:
                    future.set_exception(RuntimeError("this batcher is closed"))
            elif batch:
                self._serve(batch)
            if ended:
                return

    def _collect(self) -> tuple[list[tuple[Item, Future[Result]]], bool]:
        """Return (the next batch, whether the batcher was closed). If it was closed, the batch is all waiting items."""
        batch: list[tuple[Item, Future[Result]]] = []
        entry = self._queue.get()
        while entry is not None:
            batch.append(entry)
            if len(batch) == self._max_batch:
                return batch, False
            for _ in range(_TURNS):
                try:
                    entry = self._queue.get(timeout=_WAIT)
                    break
                except queue.Empty:
                    self._wait_for_loop()
            else:
                return batch, False
        return batch, True

    def _wait_for_loop(self) -> None:
        """Wait until the callers' event loop has processed everything that is ready now."""
        come = threading.Event()
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(come.set)
                come.wait(_LONGEST_TURN)
        except RuntimeError:  # the loop is closed
            return

    def _serve(self, batch: list[tuple[Item, Future[Result]]]) -> None:
        """Give each future a result or an exception. Raises nothing: the thread must survive a model's errors."""
        raise NotImplementedError


class Batcher(BatchThread[Item, Result]):
    """Runs `work(items) -> results` for each batch.

    An exception that `work` returns instead of a result is raised in that item's caller only; one that it raises
    reaches all callers of the batch.
    """

    def __init__(self, work: Callable[[list[Item]], Sequence[Result | Exception]], max_batch: int):
        super().__init__(max_batch)
        self._work = work

    def _serve(self, batch: list[tuple[Item, Future[Result]]]) -> None:
        try:
            results: Sequence[Any] = self._work([item for item, _ in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{len(batch)} items in a batch, but {len(results)} results")
        except BaseException as error:
            results = [error if isinstance(error, Exception) else RuntimeError(repr(error))] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


class Job(Generic[Item, Result]):
    """An item of a running batch, and its caller."""

    def __init__(self, item: Item, future: Future[Result]):
        self.item, self._future = item, future

    def finish(self, result: Result | Exception) -> None:
        """Give the caller the result, or raise the error there. Only the first one counts."""
        if self._future.done():
            return
        if isinstance(result, Exception):
            self._future.set_exception(result)
        else:
            self._future.set_result(result)


class RefillingBatcher(BatchThread[Item, Result]):
    """Runs `work(jobs, take)` for each batch.

    `work` finishes each job as soon as it has its result, and calls `take(n)`, which does not wait, for up to n further
    waiting jobs. Jobs that it leaves unfinished get its exception.
    """

    def __init__(
        self,
        work: Callable[[list[Job[Item, Result]], Callable[[int], list[Job[Item, Result]]]], None],
        max_batch: int,
    ):
        super().__init__(max_batch)
        self._work = work

    def _serve(self, batch: list[tuple[Item, Future[Result]]]) -> None:
        jobs = [Job(item, future) for item, future in batch]

        def take(most: int) -> list[Job[Item, Result]]:
            found = self._waiting(most)
            jobs.extend(found)
            return found

        error: Exception = RuntimeError("this item was left out of its batch")
        try:
            self._work(list(jobs), take)
        except BaseException as raised:
            error = raised if isinstance(raised, Exception) else RuntimeError(repr(raised))
        for job in jobs:
            job.finish(error)

    def _waiting(self, most: int) -> list[Job[Item, Result]]:
        found: list[Job[Item, Result]] = []
        while len(found) < most and not self._closed:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                break
            if entry is None:  # the batcher was closed, which `_collect` must notice
                self._queue.put(None)
                break
            if entry[1].set_running_or_notify_cancel():
                found.append(Job(*entry))
        return found


def derive_seed(request: Request) -> int:
    """Return the seed of one draw. It depends only on the prompt and the replica."""
    text = json.dumps([[dict(m) for m in request.messages], request.replica], sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

"""The event loop of a run, and helpers to run several jobs at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar, cast

from workbench.errors import NodeError

T = TypeVar("T")

#: Allocations between two passes of the garbage collector (Python: 700). The objects of a call are freed by reference
#: counting; scanning them repeatedly took 5% of the time of a run against a fast server.
ALLOCATIONS = 20_000


_deadline: contextvars.ContextVar[float | None] = contextvars.ContextVar("deadline", default=None)


def remaining_seconds() -> float | None:
    """Return the seconds until the deadline of the call that this code serves; None without a deadline."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())


async def run_in_thread(function: Callable[[], T], timeout: float) -> T:
    """Run a blocking function in a thread of its own and return its result.

    After `timeout` seconds the thread is abandoned. It is a daemon, so that it cannot keep the process from ending.
    Raises TimeoutError, and whatever the function raises.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(cast(T, result))
        else:
            outcome.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)

    def work() -> None:
        result, error = None, None
        try:
            context.run(_deadline.set, time.monotonic() + timeout)
            result = context.run(function)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="workbench-call", daemon=True).start()
    async with asyncio.timeout(timeout):
        return await outcome


@contextmanager
def fewer_collections() -> Generator[None]:
    """Run the garbage collector less often in the block. For our own processes only: it affects all threads."""
    before = gc.get_threshold()
    gc.set_threshold(max(ALLOCATIONS, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


#: Called with the loop and the task of a coroutine started in this context, so that it can be cancelled.
_begun: contextvars.ContextVar[Callable[[asyncio.AbstractEventLoop, asyncio.Task[Any]], None] | None]
_begun = contextvars.ContextVar("begun", default=None)


def run_in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like asyncio.run, with fewer passes of the garbage collector.

    If an event loop is already running, as in a notebook, the coroutine gets its own thread, and the caller waits for
    it. An interrupt then cancels the coroutine and waits for its end; a second one does not wait.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(coroutine)
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="workbench-run") as threads:
        watch = _Watch()
        ended = threads.submit(contextvars.copy_context().run, watch.run, partial(_run, coroutine))
        try:
            return ended.result()
        except KeyboardInterrupt:
            watch.cancel()
            return ended.result()


async def run_beside(function: Callable[[], T]) -> T:
    """Run a function that calls `run_in_loop` in a thread of its own and return its result. If this is cancelled, the
    coroutine is cancelled, too, and its end is awaited."""
    watch = _Watch()
    job = asyncio.ensure_future(asyncio.to_thread(watch.run, function))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        watch.cancel()
        with suppress(Exception):
            await job
        raise


class _Watch:
    """Runs a function, and stores the coroutine that it starts."""

    def __init__(self) -> None:
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def run(self, function: Callable[[], T]) -> T:
        _begun.set(lambda loop, task: setattr(self, "_running", (loop, task)))
        return function()

    def cancel(self) -> None:
        if self._running is not None:
            loop, task = self._running
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(task.cancel)


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def told() -> T:
        if (tell := _begun.get()) is not None:
            task = asyncio.current_task()
            assert task is not None
            tell(asyncio.get_running_loop(), task)
        return await coroutine

    with fewer_collections():
        return asyncio.run(told())


async def gather_all(jobs: Iterable[Awaitable[T]], last: type[BaseException] = NodeError) -> list[T]:
    """Run all jobs and return their results.

    All jobs finish before an error is raised: their calls are paid for, so they are recorded, and a replay sees the
    same. Of several errors, the first that is not a `last` is raised, else the first.
    """
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    errors = [o for o in outcomes if isinstance(o, BaseException)]
    if errors:
        raise next((e for e in errors if not isinstance(e, last)), errors[0])
    return cast(list[T], outcomes)


class BackgroundLoop:
    """An event loop in its own thread, started with the first job. Jobs may come from any thread or event loop of the
    process that made it, but not from a fork. It runs until the process ends, also in functions of `atexit`."""

    def __init__(self, name: str):
        self._name, self._lock, self.process = name, threading.Lock(), os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running_here(self) -> bool:
        """Return True if the calling code runs in this loop."""
        return self._thread is threading.current_thread()

    def submit(self, job: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin a job. Cancelling the future cancels it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(_LastingThreads())
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(job, self._loop)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Cancel all jobs, run the last job, and end the thread. A later job starts another one."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        for job in (_cancel_all, *([last] if last is not None else [])):
            asyncio.run_coroutine_threadsafe(job(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _LastingThreads(concurrent.futures.ThreadPoolExecutor):
    """A daemon thread for each call. Python's own executor, used by `asyncio.to_thread` and host look-ups, refuses
    calls after the end of the main thread, which is too early for cleanup at exit."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        try:
            threading.Thread(target=work, name="workbench-blocking", daemon=True).start()
        except RuntimeError:  # Python 3.12 starts no thread at exit
            work()
        return future


async def _cancel_all() -> None:
    jobs = asyncio.all_tasks() - {asyncio.current_task()}
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)

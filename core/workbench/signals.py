"""Ctrl-C and SIGTERM: the first signal lets a run end well, the second ends it now."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from workbench.text import alert

PATIENCE = 10.0  # seconds for calls in flight, after the first signal
GRACE = 5.0  # seconds for the run to end, after the second


def catch_signals(course: asyncio.Task[Any], stop: Callable[[], bool], hint: str) -> Callable[[], None]:
    """Handle SIGINT and SIGTERM for a run, and return the function that restores the earlier handlers.

    First signal: `stop()` sends nothing new; `course` is cancelled after PATIENCE seconds. Second signal: it is
    cancelled now, and if the process still runs GRACE seconds later, because a tool or a metric does not return, the
    process ends. Nothing recorded is lost by that.

    stop: returns False if it was called before. hint: how to resume, printed if the process is ended.
    """
    loop = asyncio.get_running_loop()
    watches: list[threading.Timer] = []
    received = 0

    def in_loop() -> None:
        if stop():
            loop.call_later(PATIENCE, course.cancel)
        else:
            course.cancel()

    def handle(number: int, frame: object) -> None:
        nonlocal received
        received += 1
        if received > 1:  # not by the loop, which may be what does not return
            watch = threading.Timer(GRACE, end_process, [hint])
            watch.daemon = True
            watch.start()
            watches.append(watch)
        loop.call_soon_threadsafe(in_loop)

    earlier: dict[int, Any] = {}
    for name in ("SIGINT", "SIGTERM"):
        with suppress(AttributeError, ValueError):  # not on this system; not in the main thread
            number = getattr(signal, name)
            earlier[number] = signal.signal(number, handle)

    def restore() -> None:
        for watch in watches:
            watch.cancel()
        for number, handler in earlier.items():
            signal.signal(number, handler)

    return restore


@contextmanager
def interrupted_by_sigterm() -> Generator[None]:
    """SIGTERM is what Ctrl-C is, KeyboardInterrupt, until a run that has been stored catches signals itself."""

    def handle(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        earlier = signal.signal(signal.SIGTERM, handle)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


@contextmanager
def naming_resume(run: str, database: object) -> Generator[None]:
    """A KeyboardInterrupt that comes before a stored run catches signals says how to resume it."""
    try:
        yield
    except KeyboardInterrupt as error:
        if str(error):  # it names who was interrupted
            raise
        raise KeyboardInterrupt(f"resume the run with: workbench resume {run} --db {database}") from error


def end_process(hint: str) -> None:
    """End this process and all its threads with exit code 130."""
    alert(f"\nEnded, since something did not return. Resume with: {hint}")
    os._exit(130)

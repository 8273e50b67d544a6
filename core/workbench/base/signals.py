"""Ctrl-C and SIGTERM: the first signal ends a run cleanly, the second ends it immediately, even if something hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from workbench.base.text import alert, visible

PATIENCE = 10.0  # seconds for calls in flight, after the first signal
GRACE = 5.0  # seconds for the run to end, after the second

#: C code that does not return, such as a search of `re` in a metric, holds Python's lock, so no handler and no thread
#: can run. A process next to the run still learns of each signal, since the interpreter writes its number into a pipe
#: in C. It ends with the pipe. It does not import `signal`, which takes a third of its start time.
_WATCHDOG = """
import os, select, sys
heard, grace, last = 0, float(sys.argv[1]), sys.argv[2]
run, interrupt, terminate, kill = map(int, sys.argv[3:])
while heard < 2:
    numbers = os.read(0, 64)
    if not numbers:
        sys.exit()
    heard += sum(n in (interrupt, terminate) for n in numbers)
while select.select([0], [], [], grace)[0]:
    if not os.read(0, 64):
        sys.exit()
os.write(2, last.encode())
os.kill(run, kill)
"""


def catch_signals(task: asyncio.Task[Any], stop: Callable[[], bool], hint: str) -> Callable[[], None]:
    """Handle SIGINT and SIGTERM for a run, and return the function that restores the earlier handlers.

    First signal: `stop()` stops new calls; `task` is cancelled after PATIENCE seconds. Second signal: it is cancelled
    now. If the process still runs GRACE seconds later, because a tool or a metric does not return, it ends, by SIGKILL
    if it cannot end itself. No recorded data is lost.

    stop: returns False if it was called before. hint: how to resume, printed if the process is ended.
    """
    loop = asyncio.get_running_loop()
    watches: list[threading.Timer] = []
    received = 0

    def in_loop() -> None:
        if stop():
            loop.call_later(PATIENCE, task.cancel)
        else:
            task.cancel()

    def handle(number: int, frame: object) -> None:
        nonlocal received
        received += 1
        if received > 1:  # not by the loop, which may be blocked
            watch = threading.Timer(GRACE, end_process, [hint])
            watch.daemon = True
            watch.start()
            watches.append(watch)
        loop.call_soon_threadsafe(in_loop)

    earlier: dict[int, Any] = {}
    for name in ("SIGINT", "SIGTERM"):
        with suppress(AttributeError, ValueError):  # not on this system, or not in the main thread
            number = getattr(signal, name)
            earlier[number] = signal.signal(number, handle)
    end_watchdog = _start_watchdog(hint) if earlier else lambda: None

    def restore() -> None:
        end_watchdog()
        for watch in watches:
            watch.cancel()
        for number, handler in earlier.items():
            signal.signal(number, handler)

    return restore


def _start_watchdog(hint: str) -> Callable[[], None]:
    """Start the process that ends this one at the second signal. Returns a function that ends it."""
    if sys.platform == "win32":  # has no SIGKILL
        return lambda: None
    inside, outside = os.pipe()
    os.set_blocking(outside, False)  # required by the C handler
    told = f"{visible(_last_words(hint))}\n"
    numbers = map(str, (os.getpid(), int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIGKILL)))
    command = [sys.executable, "-I", "-S", "-c", _WATCHDOG, str(GRACE + 1.0), told, *numbers]
    # In a session of its own, out of reach of the terminal's Ctrl-C.
    process = subprocess.Popen(command, stdin=inside, start_new_session=True)
    os.close(inside)
    earlier = signal.set_wakeup_fd(outside, warn_on_full_buffer=False)

    def end() -> None:
        signal.set_wakeup_fd(earlier)
        os.close(outside)
        process.wait()

    return end


@contextmanager
def interrupted_by_sigterm() -> Generator[None]:
    """Treat SIGTERM like Ctrl-C, as KeyboardInterrupt, until a stored run handles signals itself."""

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


def _last_words(hint: str) -> str:
    return f"\nEnded, since something did not return. Resume with: {hint}"


def end_process(hint: str) -> None:
    """End this process and all its threads with exit code 130."""
    alert(_last_words(hint))
    os._exit(130)

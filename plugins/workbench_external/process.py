"""Runs a program for a row: in a process group of its own, with a deadline, its output bounded, and killed whole."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

#: Bytes of output that are read; a program that prints more is ended.
MOST_OUTPUT = 16 << 20
#: Bytes of its errors that are kept, the last ones.
_TAIL = 4000
#: Seconds between two looks at how much it has printed.
_LOOK = 0.2


@dataclass(frozen=True)
class Finished:
    """How a program ended. code: negative for a signal; None where it was ended here.

    ended: why it was ended here: "timeout", "output", or "over" (`run_program`).
    """

    code: int | None
    stdout: bytes
    stderr: str
    ended: str = ""


async def run_program(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes,
    timeout: float,
    over: asyncio.Event,
) -> Finished:
    """Run a program to its end. over: ends it at once when it is set.

    Its process group is killed at the end, so that nothing that it started lives on. Raises OSError if it cannot be
    started.
    """
    # Files in place of pipes: a child that left the group could hold a pipe open for ever.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        started = [*_dying_with_us(), *command]
        process = await asyncio.create_subprocess_exec(
            *started, cwd=cwd, env=dict(env), stdin=given, stdout=out, stderr=err, start_new_session=True
        )
        try:
            ended = await _watch(process, out, timeout, over)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        code = process.returncode if ended == "" else None
        return Finished(code, _head(out, MOST_OUTPUT), _tail(err), ended)


async def _watch(process: asyncio.subprocess.Process, out: IO[bytes], timeout: float, over: asyncio.Event) -> str:
    """Why a program was ended; "" where it ended by itself."""
    deadline = time.monotonic() + timeout
    itself, ended = asyncio.ensure_future(process.wait()), asyncio.ensure_future(over.wait())
    try:
        while True:
            left = max(0.0, deadline - time.monotonic())
            await asyncio.wait({itself, ended}, timeout=min(left, _LOOK), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return "over"
            if os.fstat(out.fileno()).st_size > MOST_OUTPUT:
                return "output"
            if itself.done():
                return ""
            if time.monotonic() >= deadline:
                return "timeout"
    finally:
        for waiting in (itself, ended):
            waiting.cancel()


def _head(file: IO[bytes], most: int) -> bytes:
    file.seek(0)
    return file.read(most)


def _tail(file: IO[bytes]) -> str:
    file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
    return file.read(_TAIL).decode("utf-8", "replace")


@cache
def _dying_with_us() -> tuple[str, ...]:
    """What starts a program so that it is killed when this process is, if the machine has it."""
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "KILL", "--") if found else ()

"""Runs a program for a row: in a process group of its own, with a deadline, its output bounded, and killed whole."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: Bytes of output that are read; a program that prints more is ended.
MOST_OUTPUT = 16 << 20
#: Bytes of its errors that are kept, the last ones.
_TAIL = 4000


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
    process = await asyncio.create_subprocess_exec(
        *_dying_with_us(),
        *command,
        cwd=cwd,
        env=dict(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    given, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert given is not None and stdout is not None and stderr is not None
    out, err, flooded = bytearray(), bytearray(), asyncio.Event()

    async def feed() -> None:
        with suppress(ConnectionError):
            given.write(stdin)
            await given.drain()
            given.close()

    async def read(stream: asyncio.StreamReader, into: bytearray, whole: bool) -> None:
        while part := await stream.read(1 << 16):
            into += part
            if not whole:
                del into[:-_TAIL]
            elif len(into) > MOST_OUTPUT:
                flooded.set()
                return

    reading = asyncio.gather(feed(), read(stdout, out, True), read(stderr, err, False))
    ends = {
        "": asyncio.ensure_future(process.wait()),
        "over": asyncio.ensure_future(over.wait()),
        "output": asyncio.ensure_future(flooded.wait()),
    }
    try:
        await asyncio.wait(ends.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        # Its own end counts first: that its last call ended the row, say, came before.
        ended = next((why for why in ("over", "output", "") if ends[why].done()), "timeout")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        with suppress(asyncio.TimeoutError):  # a child in another group may hold the pipes open
            await asyncio.wait_for(reading, 1.0)
        for waiting in ends.values():
            waiting.cancel()
    code = process.returncode if ended == "" else None
    return Finished(code, bytes(out), err.decode("utf-8", "replace"), ended)


@cache
def _dying_with_us() -> tuple[str, ...]:
    """What starts a program so that it is killed when this process is, if the machine has it."""
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "KILL", "--") if found else ()

"""Runs a program in its own process group, with a deadline and bounded output, and kills all of its processes."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from workbench_kit.acting import check_program, dying_with_us

#: Maximum bytes of output; a program that prints more is ended.
MAX_OUTPUT = 16 << 20
#: Bytes of stderr to keep, from its beginning and from its end.
_ENDS = 4000
#: The variable that marks the processes of a row.
_MARK = "WORKBENCH_EXTERNAL_ROW"
#: Seconds between two checks of the output's size.
_LOOK = 0.2
#: Characters to report from the beginning and from the end of stderr.
_TOLD = 300
_FRAMES, _MARKER = "Traceback (most recent call last):", re.compile(r"[\s|]*[~^]+\s*")
#: A frame of a JavaScript traceback, and the lines of its own source that Node prints before it.
_NODES = re.compile(r"\s+at .*:\d+:\d+\)?( \{)?|node:internal/\S+")


@dataclass(frozen=True)
class Finished:
    """The end of a program. code: negative for a signal; None if it was ended here.

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
    waited: Callable[[], float],
    over: asyncio.Event,
) -> Finished:
    """Run a program to its end.

    Args:
        timeout: seconds, not counting the time that it waited for a model.
        waited: returns that time so far.
        over: ends the program at once when set.

    Raises OSError if it cannot be started.
    """
    begun = time.monotonic()
    # Files instead of pipes: a child that left the group could hold a pipe open forever.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        async with running(command, cwd=cwd, env=env, stdin=given, stdout=out, stderr=err) as process:
            ended = await _watch(process, (out, err), lambda: begun + timeout + waited(), over)
        code = process.returncode if ended == "" else None
        return Finished(code, _head(out, MAX_OUTPUT), read_ends(err), ended)


@asynccontextmanager
async def running(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: IO[bytes] | int,
    stdout: IO[bytes] | int,
    stderr: IO[bytes],
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a program in its own process group for the time of the context.

    On exit, its group is killed, and every other process that it started with its environment. Raises OSError if it
    cannot be started.
    """
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    check_program(command[0], cwd, env)
    process = await asyncio.create_subprocess_exec(
        *dying_with_us(),
        *command,
        cwd=cwd,
        env={**env, _MARK: mark},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.to_thread(_kill_marked, lambda found: found == mark)


async def _watch(
    process: asyncio.subprocess.Process,
    printed: Sequence[IO[bytes]],
    deadline: Callable[[], float],
    over: asyncio.Event,
) -> str:
    """Wait for a program, and return why it was ended; "" if it ended by itself."""
    itself, ended = asyncio.ensure_future(process.wait()), asyncio.ensure_future(over.wait())
    try:
        while True:
            await asyncio.wait({itself, ended}, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return "over"
            if any(os.fstat(file.fileno()).st_size > MAX_OUTPUT for file in printed):
                return "output"
            if itself.done():
                return ""
            if time.monotonic() >= deadline():
                return "timeout"
    finally:
        for waiting in (itself, ended):
            waiting.cancel()


def kill_abandoned() -> None:
    """Kill processes that agents of a killed process of ours left running."""
    _kill_marked(
        lambda found: found.partition("-")[0].isdigit() and not Path("/proc", found.partition("-")[0]).exists()
    )


def _kill_marked(chosen: Callable[[str], bool]) -> None:
    """Kill the agents' processes whose mark is chosen. Without /proc, none is found."""
    name = f"{_MARK}=".encode()
    for place in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError, ValueError):
            found = next((part for part in place.read_bytes().split(b"\0") if part.startswith(name)), None)
            if found is not None and chosen(found.removeprefix(name).decode()):
                os.kill(int(place.parent.name), signal.SIGKILL)


def _head(file: IO[bytes], most: int) -> bytes:
    file.seek(0)
    return file.read(most)


def read_ends(file: IO[bytes]) -> str:
    """Return the beginning and the end of a program's output."""
    size = os.fstat(file.fileno()).st_size
    begin = _head(file, _ENDS)
    file.seek(max(len(begin), size - _ENDS))
    cut = b"\n...\n" if size > 2 * _ENDS else b""
    return (begin + cut + file.read(_ENDS)).decode("utf-8", "replace")


def last_words(errors: str) -> str:
    """Return the beginning and the end of a program's stderr as part of a sentence; "" if it is empty.

    Of the last Python traceback only the last place and the error are kept, and of a Node traceback no frames.
    """
    lines = [line for line in errors.splitlines() if not _MARKER.fullmatch(line) and not _NODES.fullmatch(line)]
    if _FRAMES in lines:
        begin = len(lines) - lines[::-1].index(_FRAMES)
        end = next((n for n in range(begin, len(lines)) if not lines[n].startswith(" ")), len(lines))
        places = [line for line in lines[begin:end] if line.startswith("  File ")]
        lines = [*places[-1:], *lines[end:]]
    said = " ".join(" ".join(lines).split())
    if len(said) > 2 * _TOLD:
        said = f"{said[:_TOLD]} ... {said[-_TOLD:]}"
    return f"; it said: {said}" if said else ""

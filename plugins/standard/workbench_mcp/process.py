"""Run a command of workbench in its own process, and report its progress.

This keeps a workflow's output out of the protocol. A cancelled call is an interrupted run, which can be resumed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from workbench.base.child_process import python_command

#: Seconds from one interrupt to the next, and from that to the kill.
PATIENCE = 20.0
#: Maximum number of characters of stderr that an error quotes, and of stdout that are kept.
_QUOTED, _MAX = 2_000, 50_000_000
_BUDGET = re.compile(r"budget: .*?calls (\d+)")

#: (calls so far, the ceiling or None, last line of output)
Report = Callable[[float, float | None, str | None], Awaitable[None]]


class CommandFailed(Exception):
    """A command ended with an error. The text states the problem and the remedy."""


async def run_command(arguments: Sequence[str], root: Path, report: Report | None = None) -> tuple[int, str]:
    """Run a command in a folder. Returns its exit code and its stdout.

    report: called with each call and each line of progress. Cancelling this interrupts the command and waits for its
    end.
    """
    command = python_command("-m", "workbench", *arguments)
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, cwd=root, start_new_session=True)
    said, told, progress = list[str](), list[str](), _Progress(report)

    async def read_stdout() -> None:
        assert process.stdout is not None
        async for text in TextReceiveStream(process.stdout, errors="replace"):
            if sum(map(len, said)) < _MAX:
                said.append(text)

    async def read_stderr() -> None:
        assert process.stderr is not None
        rest = ""
        async for text in TextReceiveStream(process.stderr, errors="replace"):
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                told.append(f"{line}\n")
                await progress.add(line)
            del told[:-100]

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(read_stdout)
            group.start_soon(read_stderr)
            await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    code, out = process.returncode or 0, "".join(said)
    if code not in (0, 100, 101) and not out.strip():
        raise CommandFailed("".join(told)[-_QUOTED:].strip() or f"it ended with code {code}")
    return code, out


async def run_json(command: Sequence[str], arguments: Sequence[str], root: Path, report: Report | None = None) -> Any:
    """Run a command with `--json` and return the printed value. Raises CommandFailed if it is an error."""
    code, out = await run_command([*command, "--json", *arguments], root, report)
    try:
        found = json.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise CommandFailed(f"it ended with code {code} and printed no JSON") from None
    if isinstance(found, dict) and isinstance(error := found.get("error"), dict) and found.get("ok") is False:
        place = ":".join(str(error[key]) for key in ("file", "line", "column") if error.get(key) is not None)
        told = ": ".join(str(part) for part in (place, error.get("message")) if part)
        raise CommandFailed("\n".join(str(part) for part in (told, error.get("hint")) if part))
    return found


class _Progress:
    """Calls and lines of progress, parsed from stderr with `--verbose`."""

    def __init__(self, report: Report | None):
        self._report, self._calls, self._most = report, 0, None

    async def add(self, line: str) -> None:
        if self._report is None or not line.strip():
            return
        if found := _BUDGET.search(line):
            self._most = float(found[1])
        is_call = line.startswith("call ")
        self._calls += is_call
        await self._report(float(self._calls), self._most, None if is_call else line[:500])


async def _end(process: Process) -> None:
    """Interrupt a process as Ctrl-C does, then once more, then kill it with its children."""
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
        if process.returncode is not None:
            break
        try:
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        except ProcessLookupError:
            break
        with anyio.move_on_after(PATIENCE):
            await process.wait()
    await process.aclose()

"""Worlds in processes of their own, from our side: a keeper for each kind of world, and a process for each row.

`driver.py` is the other side.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from workbench.errors import NodeError, SpecError
from workbench.spec import PREFIX, load_python, parse_address, pass_door, start_program
from workbench_kit.acting import check_program, dying_with_us
from workbench_worlds.interpreter import WORLDS, find_interpreter

#: Maximum bytes of a line from a process.
LONGEST_LINE = 4_000_000
_DRIVER = Path(__file__).with_name("driver.py")
#: Our environment variables that every world gets, without keys of models.
_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "JAVA_HOME", "XDG_CACHE_HOME", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class WorldPlace:
    """The class of a world: its address, the folder of the workflow file, the interpreter and further variables."""

    address: str
    base: Path
    python: str | None = None
    env: tuple[tuple[str, str], ...] = ()

    def locate(self) -> dict[str, str]:
        """Return where the driver finds the class. Raises SpecError if it does not exist."""
        if not self.address.startswith(PREFIX):
            return {"file": str(WORLDS / f"{self.address}.py"), "name": "World", "base": str(self.base.resolve())}
        parsed, beside = parse_address(self.address), dict.fromkeys(("path", "base"), str(self.base.resolve()))
        path = parsed.file(self.base).resolve()
        if path.is_file():
            return {"file": str(path), "name": parsed.name, **beside}
        if parsed.is_file:
            raise SpecError(f"there is no file {path}", hint="Write a path from the folder of the workflow file.")
        return {"module": parsed.module, "name": parsed.name, **beside}


def known_worlds() -> list[str]:
    """List the names of the built-in worlds."""
    return sorted(path.stem for path in WORLDS.glob("[a-z]*.py"))


def enter_world(address: str, base: Path, python: str | None, now: bool = False) -> None:
    """Pass the doors of a world: it is Python in its own program, and installing requirements runs their code."""
    if address.startswith(PREFIX):
        load_python(address, base, "play", now=now)
    else:
        pass_door("runs Python", what := f"the world {address}", what, base, now=now)
    if python is not None:
        command = f"pip install -r {python}" if python.endswith(".txt") else python
        start_program(command, base, "python", now=now)


class WorldKeeper:
    """The process that imports a world once, and forks a child for each row. It is restarted if it has died."""

    def __init__(self, place: WorldPlace, command: list[str]):
        self.place, self.command = place, command
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._ends: dict[int, asyncio.Future[str]] = {}

    @classmethod
    async def open(cls, place: WorldPlace) -> WorldKeeper:
        """Find the interpreter. Raises SpecError."""
        enter_world(place.address, place.base, place.python, now=True)
        program = await asyncio.to_thread(find_interpreter, place.python, place.base)
        check_program(program, place.base, os.environ)
        return cls(place, [*dying_with_us(), program, str(_DRIVER)])

    async def begin(self) -> RowProcess:
        """Start a process for a row."""
        if self._control is None:
            self._start()
        assert self._control is not None
        number, (ours, theirs) = next(self._numbers), socket.socketpair()
        self._ends[number] = asyncio.get_running_loop().create_future()
        with theirs:
            socket.send_fds(self._control, [json.dumps({"start": number}).encode()], [theirs.fileno()])
        reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
        return RowProcess(self, number, reader, writer)

    def _start(self) -> None:
        if self._process is not None:  # one that was killed
            _wait(self._process)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        env |= {"PYTHONHASHSEED": "0", **dict(self.place.env)}  # the same set order when a row is played again
        with theirs:
            self._process = subprocess.Popen(
                [*self.command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        ours.send(json.dumps(self.place.locate()).encode())
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours, self._listen, ours)

    def _listen(self, control: socket.socket) -> None:
        with suppress(BlockingIOError):
            while data := _received(control):
                told = json.loads(data)
                self._ended(told["ended"], told["why"])
            self._lose(control)

    def _ended(self, number: int, why: str) -> None:
        end = self._ends.get(number)
        if end is not None and not end.done():
            end.set_result(why)

    def _lose(self, control: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(control)
        control.close()
        self._control = None
        for number in self._ends:
            self._ended(number, "the process that keeps the worlds has ended")

    async def why_ended(self, number: int) -> str:
        """Return why a process has ended, once that is reported."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._ends[number]), 5)
        return "no reason was told"

    def kill(self, number: int) -> None:
        """End a process, with all processes that it started."""
        self._ends.pop(number, None)
        if self._control is not None:
            with suppress(OSError):
                self._control.send(json.dumps({"kill": number}).encode())

    def warnings(self) -> list[str]:
        return []

    def kept_state(self) -> list[str]:
        return []

    async def aclose(self) -> None:
        """End all worlds of this kind. The keeper ends when its socket is closed."""
        if self._control is not None:
            self._lose(self._control)
        if self._process is not None:
            await asyncio.to_thread(_wait, self._process)


def _received(control: socket.socket) -> bytes:
    try:
        return control.recv(4096)
    except ConnectionError:
        return b""


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class RowProcess:
    """The process of one row's world."""

    def __init__(self, keeper: WorldKeeper, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.keeper, self.number, self.reader, self.writer = keeper, number, reader, writer

    async def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer of the world.

        Raises NodeError("environment") for a fault of the world, which is then ended, and SpecError if its package is
        missing, or its class does not take the settings.
        """
        line, why = b"", f"no answer within {seconds:g} s"
        try:
            async with asyncio.timeout(seconds):
                self.writer.write(json.dumps(request).encode() + b"\n")
                await self.writer.drain()
                line = await self.reader.readline()
                why = "" if line else await self.keeper.why_ended(self.number)
        except TimeoutError:
            pass
        except ConnectionError:
            why = await self.keeper.why_ended(self.number)
        except ValueError:  # a line over the limit
            why = f"it said more than {LONGEST_LINE} bytes at once"
        address = self.keeper.place.address
        if why:
            self.close()
            raise NodeError("environment", f"{address}: {why}")
        told = json.loads(line)
        if how := told.get("unusable"):
            needed = told["missing"] and (
                f"Write python: {self._requirements(told['missing'])}, or an interpreter that has it."
            )
            hint = needed or "Correct the file of the world, or `play` and `settings` of the node."
            raise SpecError(f"the world '{address}' cannot be {how}: {told['error']}", hint=hint)
        if "error" in told:
            raise NodeError("environment", f"{address}: {told['error']}")
        return told

    def _requirements(self, missing: str) -> str:
        ours = WORLDS / f"{self.keeper.place.address}.txt"
        return ours.name if ours.is_file() else f"a list of requirements with {missing}"

    def close(self) -> None:
        """End it, with all processes that it started."""
        self.writer.close()
        self.keeper.kill(self.number)

"""A sandbox call on workbench's side: request, output and outcome.

The output is untrusted: a limited number of bytes that must be JSON in the agreed form. Anything else is a bad result.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from workbench.runtime import SandboxResult

#: MB of memory, bytes printed, bytes of a result.
LIMITS = {"memory": 512, "output": 1 << 20, "result": 1 << 20}
KINDS = ("ok", "error", "forbidden", "timeout", "memory", "output", "bad_result", "crashed")
PRINTED = 4096  # bytes of printed output that are returned
LONGEST_MESSAGE = 2000
DEEPEST = 100  # levels of nested lists and objects: deeper ones break JSON writers


class Running:
    """A call with a running child. `ended` receives the zygote's message about its end, or None if the zygote is
    gone."""

    def __init__(self, number: int, limits: Mapping[str, int], kill: Callable[[int], None]):
        self.number, self.limits, self.kill = number, limits, kill
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[dict[str, Any] | None] = self.loop.create_future()
        self.answer, self.printed, self.printed_size = bytearray(), bytearray(), 0
        self.verdict: tuple[str, str] | None = None
        self._open: list[int] = []

    def send(self, control: socket.socket, request: bytes, timeout: float) -> None:
        """Send the request to a new child of the zygote, and read its output. Raises OSError."""
        theirs = [os.memfd_create("request")]
        try:
            for take in (self._take_answer, self._take_printed):
                ours, other = os.pipe()
                theirs.append(other)
                self._open.append(ours)
                os.set_blocking(ours, False)
                self.loop.add_reader(ours, self._read, ours, take)
            with open(theirs[0], "wb", closefd=False) as file:
                file.write(request)
            os.lseek(theirs[0], 0, os.SEEK_SET)
            order = json.dumps({"id": self.number, "timeout": timeout}).encode()
            socket.send_fds(control, [order], theirs)
        finally:
            for fd in theirs:
                os.close(fd)

    def _read(self, fd: int, take: Callable[[bytes], None]) -> bool:
        """Read available data. Returns False if there is none now, or at the end."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self.loop.remove_reader(fd)
            return False
        take(data)
        return self.verdict is None

    def _take_answer(self, data: bytes) -> None:
        self.answer += data
        if len(self.answer) > self.limits["result"]:
            self._condemn("bad_result", f"more than {self.limits['result']} bytes")

    def _take_printed(self, data: bytes) -> None:
        self.printed_size += len(data)
        self.printed += data[: PRINTED - len(self.printed)]
        if self.printed_size > self.limits["output"]:
            self._condemn("output", f"printed more than {self.limits['output']} bytes")

    def _condemn(self, kind: str, message: str) -> None:
        if self.verdict is None:
            self.verdict = kind, message
            for fd in self._open:
                self.loop.remove_reader(fd)
            self.kill(self.number)

    def close(self) -> None:
        """Read the rest of the pipes and close them."""
        for fd, take in zip(self._open, (self._take_answer, self._take_printed), strict=False):
            while self.verdict is None and self._read(fd, take):
                pass
            self.loop.remove_reader(fd)
            os.close(fd)
        self._open.clear()

    def outcome(self, end: Mapping[str, Any] | None, timeout: float) -> SandboxResult:
        """Return the call's result, after the end of its child."""
        printed = self.printed.decode("utf-8", "replace")
        seconds = float(end["seconds"]) if end else 0.0
        if self.verdict is not None:
            return SandboxResult(self.verdict[0], message=self.verdict[1], printed=printed, seconds=seconds)
        if end is None:
            return SandboxResult("crashed", message="the sandbox ended", printed=printed)
        if end["late"]:
            return SandboxResult("timeout", message=f"no result within {timeout:g} s", printed=printed, seconds=seconds)
        if not self.answer:
            kind, message = describe_exit(os.waitstatus_to_exitcode(int(end["status"])))
            return SandboxResult(kind, message=message, printed=printed, seconds=seconds)
        return read_answer(bytes(self.answer), printed, seconds)


def read_answer(answer: bytes, printed: str = "", seconds: float = 0.0) -> SandboxResult:
    """Convert the child's answer to a SandboxResult. Anything but the agreed form is a bad result."""
    try:
        body = json.loads(answer.decode("utf-8"), parse_constant=_no_number, parse_float=_finite)
        _check_depth(body)
        if b"\\ud" in answer.lower():  # half a surrogate pair is valid as a JSON escape, but cannot be encoded
            json.dumps(body, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        return SandboxResult(
            "bad_result",
            message=f"the answer has not the agreed form: {error}"[:200].encode("utf-8", "backslashreplace").decode(),
            printed=printed,
            seconds=seconds,
        )
    if not isinstance(body, dict) or body.get("kind") not in KINDS:
        return SandboxResult(
            "bad_result", message="the answer has not the agreed form", printed=printed, seconds=seconds
        )
    line = body.get("line")
    return SandboxResult(
        body["kind"],
        body.get("value") if body["kind"] == "ok" else None,
        str(body.get("message", ""))[:LONGEST_MESSAGE],
        line if type(line) is int else None,
        printed,
        seconds,
    )


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    """Parse a finite number. 1e999 is valid JSON but infinite in Python, which our files cannot hold."""
    return number if math.isfinite(number := float(text)) else _no_number(text)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [x for v in level for x in (v.values() if isinstance(v, dict) else v if isinstance(v, list) else ())]
        if not level:
            return
    raise ValueError(f"more than {DEEPEST} lists or objects in each other")


def describe_exit(code: int) -> tuple[str, str]:
    """Return (kind, message) for a call that ended without an answer.

    code: its exit code; if negative, the signal that ended it.
    """
    if code == -signal.SIGXCPU:
        return "timeout", "used up its processor time"
    return "crashed", f"ended by signal {-code}" if code < 0 else f"ended with code {code} and no result"

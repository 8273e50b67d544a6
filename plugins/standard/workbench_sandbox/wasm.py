"""The WebAssembly sandbox: Python compiled to WebAssembly (Pyodide), run by Deno without permissions. Level `wasm`.

Each call has its own process. Since starting one takes half a second, some are kept ready, and each used one is
replaced.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import SandboxError
from workbench.runtime import SandboxResult
from workbench_sandbox.attacks import ATTACKS, JAVASCRIPT, self_test
from workbench_sandbox.calls import LIMITS, PRINTED, describe_exit, read_answer
from workbench_sandbox.pyodide import INSTALL, find_deno, find_pyodide
from workbench_sandbox.watch import wait_until_exceeds

HERE = Path(__file__).parent
AT_ONCE = min(4, os.cpu_count() or 1)
READY = 2  # idle processes, about 220 MB each
OVERHEAD = 384  # MB for Deno and Pyodide, besides the memory of the guest's Python
START = 300.0  # seconds for a start: half a second of processor time, on a machine that may be busy
SEALED = [  # Deno prompts for nothing, loads no remote code, and grants no permission
    "--quiet",
    "--no-prompt",
    "--no-remote",
    "--no-npm",
    "--cached-only",
    "--no-config",
    "--no-lock",
    "--no-code-cache",
    "--node-modules-dir=none",
    "--deny-write",
    "--deny-net",
    "--deny-env",
    "--deny-run",
    "--deny-ffi",
    "--deny-sys",
    "--deny-import",
]
#: Nothing is kept between calls: the path of Deno's own storage (localStorage, caches) cannot hold files.
ENVIRONMENT = {"DENO_DIR": "/dev/null/none", "DENO_NO_UPDATE_CHECK": "1", "DENO_NO_PACKAGE_JSON": "1", "NO_COLOR": "1"}


class _Opener:
    """`await open_wasm()` returns the sandbox after its self-test passed. Raises SandboxError."""

    at_best = "wasm"  # so it is not tried if a stronger sandbox works

    async def __call__(self) -> WasmSandbox:
        sandbox = await prepare_sandbox()
        try:
            await sandbox.start()
            missed = await self_test(sandbox, [*ATTACKS, *JAVASCRIPT])
            if missed:
                raise SandboxError(f"did not stop {', '.join(missed)}")
        except BaseException:
            await sandbox.aclose()
            raise
        return sandbox


open_wasm = _Opener()


async def prepare_sandbox(**limits: int) -> WasmSandbox:
    """Return the sandbox, neither started nor tested. Raise SandboxError with what is missing and how to install it."""
    if sys.platform not in ("linux", "darwin"):
        raise SandboxError(f"the memory of a process cannot be measured on {sys.platform}; use Linux or macOS")
    deno, pyodide = find_deno(), find_pyodide()
    return WasmSandbox(deno, pyodide, await ensure_memory_state(deno, pyodide), **limits)


def build_command(
    deno: str, readable: Path, script: Path, *arguments: str, megabytes: int = LIMITS["memory"]
) -> list[str]:
    """Return the command that runs a script under Deno, with permission to read one folder and nothing else."""
    engine = f"--disallow-code-generation-from-strings,--wasm-max-mem-pages={megabytes * 16},--max-old-space-size=256"
    allowed = f"--allow-read={str(readable).replace(',', ',,')}"
    return [
        sys.executable,
        "-I",
        "-S",
        str(HERE / "launch.py"),
        deno,
        "run",
        *SEALED,
        allowed,
        f"--v8-flags={engine}",
        str(script),
        *arguments,
    ]


async def ensure_memory_state(deno: str, pyodide: Path) -> Path:
    """Return the file with the memory image of a ready Python, created if missing. Raise SandboxError."""
    parts = [(HERE / name).read_bytes() for name in ("runner.py", "prepare.py", "harness.mjs")]
    state = pyodide / f"state-{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}.bin"
    if state.exists():
        return state
    process = await asyncio.create_subprocess_exec(
        *build_command(deno, pyodide, HERE / "harness.mjs", "make", str(pyodide)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd="/",
        env=ENVIRONMENT,
        start_new_session=True,
    )
    try:
        memory, said = await asyncio.wait_for(process.communicate(b"\n".join(parts[:2])), START)
    except TimeoutError:
        memory, said = b"", b"it took too long"
    finally:
        await _end(process)
    if process.returncode or not memory:
        raise SandboxError(f"Pyodide in {pyodide} does not start: {_last_line(said)}")
    part = state.with_suffix(f".{os.getpid()}")
    try:
        part.write_bytes(memory)
        os.replace(part, state)
    except OSError as error:
        raise SandboxError(
            f"{state} cannot be written: {error.strerror}; run {INSTALL} as a user who may write there"
        ) from None
    return state


class WasmSandbox:
    """A pool of processes, one for each call. Belongs to the event loop in which it was started."""

    name = "wasm"
    level = "wasm"

    def __init__(self, deno: str, pyodide: Path, state: Path, **limits: int):
        self.limits = {**LIMITS, **limits}
        self._command = build_command(
            deno,
            pyodide,
            HERE / "harness.mjs",
            "serve",
            str(pyodide),
            str(state),
            str(self.limits["output"]),
            megabytes=self.limits["memory"],
        )
        self._ready: deque[asyncio.Task[Guest]] = deque()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def start(self) -> None:
        """Wait until the first process is ready. Raise SandboxError with its message."""
        self._fill()
        await asyncio.shield(self._ready[0])

    def _fill(self) -> None:
        while len(self._ready) < READY:
            self._ready.append(asyncio.create_task(Guest.begin(self._command)))

    async def call(
        self, source: str, function: str, arguments: Mapping[str, Any], *, timeout: float = 5.0
    ) -> SandboxResult:
        """Run source and call its function with the arguments (JSON); return its result (JSON).

        Raises SandboxError if no process can be started, and TypeError for arguments that are not JSON; failures of the
        code are part of the result.
        """
        request = json.dumps({"source": source, "function": function, "arguments": dict(arguments)}).encode()
        async with self._slots:
            guest = await self._next()
            try:
                return await guest.serve(request, timeout, self.limits)
            finally:
                await guest.aclose()

    async def _next(self) -> Guest:
        """Return a ready process. If an idle one has ended, the system ended it, not the code."""
        for _ in range(READY + 1):
            self._fill()
            task = self._ready.popleft()
            try:
                guest = await asyncio.shield(task)
            except asyncio.CancelledError:
                self._ready.appendleft(task)  # another call may use it
                raise
            self._fill()
            if guest.process.returncode is None:
                return guest
            await guest.aclose()
        raise SandboxError("the processes of the sandbox end before they are used")

    async def aclose(self) -> None:
        waiting, self._ready = self._ready, deque()
        for task in waiting:
            task.cancel()
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            if isinstance(found, Guest):
                await found.aclose()


class _Condemned(Exception):
    """A guest's output is too large. Arguments: kind of outcome, exit code, message."""


class Guest:
    """A process, ready for one call."""

    def __init__(self, process: Process):
        self.process = process
        self.answer, self.printed, self.printed_size = bytearray(), bytearray(), 0

    @classmethod
    async def begin(cls, command: list[str]) -> Guest:
        """Start a process and wait until it is ready. Raises SandboxError."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd="/", env=ENVIRONMENT, start_new_session=True
            )
        except OSError as error:
            raise SandboxError(f"{error.filename} cannot be started: {error.strerror}") from None
        assert process.stdout is not None and process.stderr is not None
        try:
            if await asyncio.wait_for(process.stdout.readline(), START) == b"ready\n":
                return cls(process)
            raise SandboxError(f"Pyodide does not start: {_last_line(await process.stderr.read(1 << 16))}")
        except TimeoutError:
            await _end(process)
            raise SandboxError(f"Pyodide was not ready within {START:g} s") from None
        except BaseException:
            await _end(process)
            raise

    async def serve(self, request: bytes, timeout: float, limits: Mapping[str, int]) -> SandboxResult:
        """Send the request and return the result of the call."""
        assert self.process.stdin is not None
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self.process.stdin.write(request)
        self.process.stdin.close()
        taking = [self._take_answer(limits["result"]), self._take_printed(limits["output"])]
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(t) for t in taking]
        reading = asyncio.gather(*tasks)
        watching = asyncio.create_task(wait_until_exceeds(self.process.pid, (limits["memory"] + OVERHEAD) << 20))
        try:
            await asyncio.wait({reading, watching}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            seconds = loop.time() - begun
            printed = self.printed.decode("utf-8", "replace")
            if reading.done() and (fault := reading.exception()) is not None:
                if not isinstance(fault, _Condemned):
                    raise fault
                return SandboxResult(*fault.args, printed=printed, seconds=seconds)
            if watching.done():
                message = f"the process held {watching.result() >> 20} MB"
                return SandboxResult("memory", message=message, printed=printed, seconds=seconds)
            if not reading.done():
                return SandboxResult(
                    "timeout", message=f"no result within {timeout:g} s", printed=printed, seconds=seconds
                )
            if not self.answer:
                kind, message = describe_exit(await self.process.wait())
                return SandboxResult(kind, message=message, printed=printed, seconds=seconds)
            return read_answer(bytes(self.answer), printed, seconds)
        finally:
            begun_here: list[asyncio.Future[Any]] = [*tasks, reading, watching]
            for future in begun_here:
                future.cancel()
            await asyncio.gather(*begun_here, return_exceptions=True)

    async def _take_answer(self, most: int) -> None:
        assert self.process.stdout is not None
        while data := await self.process.stdout.read(1 << 16):
            self.answer += data
            if len(self.answer) > most:
                raise _Condemned("bad_result", None, f"more than {most} bytes")

    async def _take_printed(self, most: int) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(1 << 16):
            self.printed_size += len(data)
            self.printed += data[: PRINTED - len(self.printed)]
            if self.printed_size > most:
                raise _Condemned("output", None, f"printed more than {most} bytes")

    async def aclose(self) -> None:
        await _end(self.process)


async def _end(process: Process) -> None:
    """Kill a process if it still runs, and release its pipes."""
    if process.returncode is None:
        try:
            os.kill(
                process.pid, signal.SIGKILL
            )  # process.kill() may take the exit code from asyncio, which warns of it
        except ProcessLookupError:
            pass
    if process.stdin is not None:
        process.stdin.close()
    for pipe in (process.stdout, process.stderr):  # read the rest, or they are not closed
        while pipe is not None and await pipe.read(1 << 16):
            pass
    await process.wait()


def _last_line(said: bytes) -> str:
    lines = [line for line in said.decode("utf-8", "replace").strip().splitlines() if not line.startswith("    at ")]
    return lines[-1][:300] if lines else "it said nothing"

"""The Linux sandbox: bubblewrap, Landlock, seccomp and resource limits around a forking zygote.

Level `strong`: all of them. `kernel`: without bubblewrap, so without separate namespaces. `limits-only`: only resource
limits, which stop no attacker. The self-test measures the level; the presence of a mechanism does not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import workbench_kit.acting.confine
from workbench.errors import SandboxError
from workbench.runtime import SandboxResult
from workbench_sandbox.attacks import self_test
from workbench_sandbox.calls import LIMITS, Running

HERE = Path(__file__).parent
CONFINE = Path(workbench_kit.acting.confine.__file__)
AT_ONCE = 2 * (os.cpu_count() or 1)  # concurrent calls
GRACE = 5.0  # seconds after a call's own timeout before the zygote is restarted
#: Configurations that passed the self-test in this process: level, user, and the confining files. The kernel is
#: constant.
_PASSED: set[tuple[Any, ...]] = set()


def _confining_files() -> list[tuple[Any, ...]]:
    """List the files that confine, each with its current state."""
    states = ((path, os.stat(path)) for path in (shutil.which("bwrap"), CONFINE) if path is not None)
    return [(str(path), at.st_ino, at.st_size, at.st_mtime_ns) for path, at in states]


async def open_linux(levels: tuple[str, ...] = ("strong", "kernel", "limits-only")) -> LinuxSandbox:
    """Open the sandbox at the strongest level whose self-test passes, tested once per process. Raise SandboxError if
    none does."""
    if sys.platform != "linux":
        raise SandboxError(f"this sandbox needs Linux, not {sys.platform}; use --sandbox wasm")
    reasons = []
    for level in levels:
        if level == "strong" and shutil.which("bwrap") is None:
            reasons.append("strong: bubblewrap (bwrap) is not installed")
            continue
        sandbox, tested = LinuxSandbox(level), (level, os.geteuid(), *_confining_files())
        try:
            await sandbox.start()
            # Attacking a level that is known to stop nothing would only cause damage.
            missed = await self_test(sandbox) if level != "limits-only" and tested not in _PASSED else []
        except SandboxError as error:
            reasons.append(f"{level}: {error}")
            continue
        except BaseException:
            await sandbox.aclose()
            raise
        if not missed:
            _PASSED.add(tested)
            sandbox.reason = "; ".join(reasons)
            return sandbox
        await sandbox.aclose()
        reasons.append(f"{level}: did not stop {', '.join(missed)}")
    raise SandboxError("; ".join(reasons))


class LinuxSandbox:
    """A zygote, which forks for each call. Belongs to the event loop in which it was started."""

    name = "linux"
    reason = ""  # why no stronger level was chosen

    def __init__(self, level: str, **limits: int):
        self.level = level
        self.limits = {**LIMITS, **limits}
        self._process: subprocess.Popen[bytes] | None = None
        self._running: dict[int, Running] = {}
        self._count = 0
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._control: socket.socket | None = None

    async def start(self) -> None:
        """Start the zygote unless it is running. Raise SandboxError with its message."""
        async with self._starting:
            if (
                self._process is not None
                and self._process.poll() is None
                and self._reading
                and not self._reading.done()
            ):
                return
            await self._stop()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            config = {
                **self.limits,
                "readable": _readable(),
                "confine": str(CONFINE),
                "landlock": self.level != "limits-only",
                "seccomp": self.level != "limits-only",
            }
            command = [*_python(), str(HERE / "zygote.py"), str(theirs.fileno()), json.dumps(config)]
            with tempfile.TemporaryFile() as said:
                try:
                    self._process = subprocess.Popen(
                        [*(_bwrap() if self.level == "strong" else ()), *command],
                        pass_fds=[theirs.fileno()],
                        cwd="/",
                        env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=said,
                        start_new_session=True,
                    )
                except OSError as error:
                    ours.close()
                    raise SandboxError(f"{error.filename} cannot be started: {error.strerror}") from None
                finally:
                    theirs.close()
                self._control = ours
                try:
                    ready = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(ours, 4096), 10)
                except (TimeoutError, OSError):
                    ready = b""
                if not ready:
                    await self._stop()
                    said.seek(0)
                    text = said.read().decode(errors="replace").strip().splitlines()
                    raise SandboxError(text[-1] if text else "the zygote did not start")
            self._reading = asyncio.create_task(self._read(ours))

    async def _read(self, control: socket.socket) -> None:
        """Pass the end of each child to its call; if the zygote is gone, end all calls."""
        try:
            while told := await asyncio.get_running_loop().sock_recv(control, 4096):
                end = json.loads(told)
                running = self._running.pop(end["id"], None)
                if running is not None and not running.ended.done():
                    running.ended.set_result(end)
        except (ValueError, OSError):
            pass  # invalid messages or a closed socket: the zygote is unusable
        finally:
            for running in self._running.values():
                if not running.ended.done():
                    running.ended.set_result(None)
            self._running.clear()

    async def call(
        self, source: str, function: str, arguments: Mapping[str, Any], *, timeout: float = 5.0
    ) -> SandboxResult:
        """Run source and call its function with the arguments (JSON); return its result (JSON).

        Raises SandboxError if the sandbox cannot be restarted, and TypeError for arguments that are not JSON; failures
        of the code are part of the result.
        """
        request = json.dumps({"source": source, "function": function, "arguments": dict(arguments)}).encode()
        async with self._slots:
            await self.start()
            self._count += 1
            running = Running(self._count, self.limits, self._kill)
            assert self._control is not None
            try:
                self._running[running.number] = running
                running.send(self._control, request, timeout)
                end = await asyncio.wait_for(running.ended, timeout + GRACE)
            except TimeoutError:
                await self._stop()  # the zygote itself hangs
                return SandboxResult("crashed", message="the sandbox did not answer")
            except OSError:
                await self._stop()  # its socket is closed or not read
                return SandboxResult("crashed", message="the sandbox ended")
            except asyncio.CancelledError:
                self._kill(running.number)  # the caller is gone
                raise
            finally:
                self._running.pop(running.number, None)
                running.close()
        return running.outcome(end, timeout)

    def _kill(self, number: int) -> None:
        if self._control is not None:
            try:
                self._control.send(json.dumps({"kill": number}).encode())
            except OSError:
                pass  # its deadline will end it

    async def _stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(0.5)  # it ends when its socket closes
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    async def aclose(self) -> None:
        await self._stop()


def _python() -> list[str]:
    """Return the base interpreter, not that of a virtual environment, to allow only the standard library."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return [str(base if base.exists() else sys.executable), "-P", "-s", "-S", "-B"]


def _readable() -> list[str]:
    """Return the folders of Python's library, and of the shared libraries that it loads."""
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}  # not the virtual environment's packages
    paths = [sysconfig.get_path(name, vars=base) for name in ("stdlib", "platstdlib")] + [f"{sys.base_prefix}/lib"]
    return list(dict.fromkeys([*filter(None, paths), "/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/dev/null"]))


def _bwrap() -> list[str]:
    """Return the bubblewrap command, with separate namespaces and a file system that holds only Python."""
    binds = [x for p in ("/usr", sys.base_prefix, str(HERE), str(CONFINE)) for x in ("--ro-bind", p, p)]
    links = []
    for name in ("lib", "lib64", "bin"):
        if os.path.islink(f"/{name}"):
            links += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            links += ["--ro-bind", f"/{name}", f"/{name}"]
    if os.geteuid() == 0:
        user = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]  # the zygote needs them to become nobody
    else:
        user = ["--unshare-user"]
    return [
        shutil.which("bwrap") or "bwrap",
        "--cap-drop",
        "ALL",
        *user,
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--setenv",
        "PYTHONHASHSEED",
        "0",
        "--setenv",
        "LC_ALL",
        "C.UTF-8",
        "--size",
        str(1 << 20),
        "--tmpfs",
        "/tmp",
        *binds,  # after /tmp, since the package itself may be below /tmp
        *links,
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--",
    ]

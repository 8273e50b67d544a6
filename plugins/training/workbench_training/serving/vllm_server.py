"""A vLLM server owned by the run: started before the first rollout, stopped when the training ends, however it ends."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp

from workbench.base.distribution import pip_install
from workbench.errors import PluginError
from workbench.spec import home_folder, start_program
from workbench_training.serving.server_log import describe_log
from workbench_training.serving.vllm_client import SyncError
from workbench_training.settings import ServerSettings

_PR_SET_PDEATHSIG = 1
#: Variables that set torch's allocator of GPU memory: the former name and the present one.
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def check_command(settings: ServerSettings) -> None:
    """Raises PluginError where the server's program is not here."""
    program = shlex.split(settings.command)[0]
    if shutil.which(program) is None:
        raise PluginError(f"there is no program '{program}' to start a server: {pip_install('training[vllm]')}")


class ManagedServer:
    """`vllm serve` on a free port of this machine.

    log: the file that takes what it prints. options, environment: what the transfer of weights needs. Where this
    process is killed, the server's first process is, too (on Linux); what that one has started must see to itself, as
    vLLM's engine does.
    """

    def __init__(
        self, base: str, settings: ServerSettings, log: Path, options: Sequence[str], environment: Mapping[str, str]
    ):
        self.base, self.settings, self.log = base, settings, log
        self.options, self.environment = options, environment
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def arguments(self) -> list[str]:
        return [
            *shlex.split(self.settings.command),
            self.base,
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            *self.options,
            "--gpu-memory-utilization",
            f"{self.settings.memory:g}",
            *self.settings.arguments,
        ]

    @staticmethod
    def inherited() -> dict[str, str]:
        """This process's environment, without allocator settings of torch, which are for training: with
        `expandable_segments` vLLM refuses its sleep mode, and weights by CUDA IPC are much slower."""
        return {name: value for name, value in os.environ.items() if name not in ALLOCATOR}

    async def start(self) -> None:
        """Start it, and wait until it is healthy. Raises SyncError with its first error and its last lines."""
        start_program(self.settings.command_line, home_folder(), now=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        begun = self.log.stat().st_size if self.log.exists() else 0  # what an earlier server said is not this one's
        with self.log.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                *self.arguments(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**self.inherited(), **self.environment},
                preexec_fn=_die_with_parent(),
            )
        try:
            async with asyncio.timeout(self.settings.start):
                while not await self._healthy():
                    if self._process.returncode is not None:
                        code = self._process.returncode
                        raise SyncError(f"the server ended with exit code {code}; {describe_log(self.log, begun)}")
                    await asyncio.sleep(0.2)
        except TimeoutError:
            said = describe_log(self.log, begun)
            raise SyncError(f"the server is not ready after {self.settings.start:g} s; {said}") from None

    async def _healthy(self) -> bool:
        with suppress(aiohttp.ClientError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=5)
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{self.url}/health") as answer:
                return answer.status == 200
        return False

    async def aclose(self) -> None:
        """Ask it to end, and after 20 seconds make it."""
        process = self._process
        if process is None:
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 20)
                break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left behind
        self._process = None


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as found:
        found.bind((address, 0))
        return found.getsockname()[1]


def _die_with_parent():
    """Return the function that a child runs before it becomes the server; None where the system has no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: a forked child should do as little as it can

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask


def require_one_base(bases: Sequence[str]) -> str:
    """The base that all policies share. Raises PluginError where they have several: a server has one."""
    if len(set(bases)) > 1:
        raise PluginError(
            f"a managed server draws for one base model, and there are {len(set(bases))}: "
            f"{', '.join(sorted(set(bases)))}"
        )
    return bases[0]

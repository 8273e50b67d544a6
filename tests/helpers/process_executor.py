"""An executor of the tests: each worker is a process of this machine, joined over a socket."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import Any, ClassVar

from pydantic import PrivateAttr

from tests.helpers.forking import start_module
from workbench_workers import Channel, Executor, Sockets, WorkerSetup


class Processes(Executor):
    """Workers as processes of this machine."""

    seconds: ClassVar[float] = 60.0
    _sockets: Sockets = PrivateAttr()
    _processes: dict[int, Any] = PrivateAttr()

    async def open(self, setup: WorkerSetup) -> None:
        self._sockets, self._processes = Sockets("127.0.0.1", setup), {}

    def command(self, number: int) -> list[str]:
        return self._sockets.command(number)

    def launch(self, number: int) -> Any:
        environment = {**os.environ, **self._sockets.environment}
        return subprocess.Popen(self.command(number), env=environment, stdin=subprocess.DEVNULL)

    async def start(self, number: int) -> Channel:
        process = self._processes[number] = self.launch(number)

        def end() -> None:
            process.kill()
            process.wait()

        return await self._sockets.join(number, self.seconds, end)

    def kill(self, number: int) -> None:
        """End a worker from outside."""
        with suppress(ProcessLookupError):
            os.kill(self._processes[number].pid, signal.SIGKILL)

    async def aclose(self) -> None:
        self._sockets.close()


class Forked(Processes):
    """Workers that begin at once, with their imports done."""

    def launch(self, number: int) -> Any:
        _, _, _, module, *given = self._sockets.command(number)
        return start_module(module, *given, env=self._sockets.environment)


class Clockwise(Processes):
    """Workers whose clock is an hour ahead."""

    before: ClassVar[str] = "import time; now = time.time; time.time = lambda: now() + 3600"

    def command(self, number: int) -> list[str]:
        python, _, _, module, *given = self._sockets.command(number)
        return [python, "-c", f"{self.before}; import runpy; runpy.run_module('{module}', run_name='__main__')", *given]


class Slow(Clockwise):
    """Workers whose machine is so busy that what they write is sent half a second later."""

    before: ClassVar[str] = (
        "import time; from workbench_workers.sockets import _Ends; write = _Ends._write; "
        "_Ends._write = lambda self: (time.sleep(0.5), write(self))"
    )

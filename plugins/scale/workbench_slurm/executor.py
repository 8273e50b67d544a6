"""The executor `slurm`: each worker is a task of an array, which joins the driver over a socket."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from workbench.base.distribution import pip_install
from workbench.errors import PluginError, SpecError
from workbench.spec import home_folder, read_outside, start_program
from workbench_workers import Channel, Executor, Secrets, Sockets, WorkerLost, WorkerSetup, join_driver

#: Seconds that a task may wait in the queue.
PATIENCE = 86_400.0
#: Seconds between two looks at a task that has not joined yet.
_LOOK = 2.0


class Slurm(Executor):
    """Workers as tasks of a Slurm array. The driver runs where jobs are submitted, with whose environment."""

    folder: str = Field("slurm", description="for what submitit writes, on a disk that all machines share")
    host: str | None = Field(None, description="name of this machine for the workers; default: its own")
    minutes: int = Field(60, ge=1, description="time limit of a task; another takes the place of one that ends")
    options: dict[str, Any] = Field(
        default={},
        description="submitit's parameters of a task, e.g. {slurm_partition: gpu, gpus_per_node: 1, mem_gb: 16, "
        "cpus_per_task: 2}",
    )
    cluster: Literal["slurm", "local"] = Field("slurm", description="local: processes of this machine, to try it out")

    _sockets: Sockets = PrivateAttr()
    _submitit: Any = PrivateAttr()
    _tasks: dict[int, Any] = PrivateAttr(default_factory=dict)
    _submitted: list[Any] = PrivateAttr(default_factory=list)

    @model_validator(mode="after")
    def _enter(self) -> Self:
        read_outside(self.folder, home_folder(), "folder")
        if self.options:  # settings of another program, which may run commands
            start_program(f"options: {json.dumps(self.options, default=str)}", home_folder(), form="")
        return self

    async def open(self, setup: WorkerSetup) -> None:
        try:
            import submitit
        except ImportError:
            raise PluginError(f"executor: slurm needs the package submitit: {pip_install('scale[slurm]')}") from None
        folder = (setup.base / self.folder).resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # the key of the sockets is in what is submitted
        try:
            self._submitit = submitit.AutoExecutor(folder=folder, cluster=self.cluster)
            self._submitit.update_parameters(timeout_min=self.minutes, name="workbench", **self.options)
        except (RuntimeError, NameError, TypeError, ValueError) as error:
            raise SpecError(
                f"nothing can be submitted here: {error}",
                hint="Run it where `sbatch` is, and give options as submitit names them.",
                path=("executor", "slurm"),
            ) from None
        # Tasks have this environment, and with it the keys of models: they are not sent over the network.
        self._sockets = Sockets(self.host or socket.getfqdn(), replace(setup, secrets=Secrets()))
        numbers = [*range(self.workers)]
        self._tasks = dict(zip(numbers, await self._submit(numbers), strict=True))

    async def _submit(self, numbers: list[int]) -> list[Any]:
        """The tasks that join under these numbers, as one array."""
        host, port = self._sockets.address
        given = [[host] * len(numbers), [port] * len(numbers), numbers, [self._sockets.key] * len(numbers)]
        try:
            tasks = await asyncio.to_thread(self._submitit.map_array, join_driver, *given)
        except Exception as error:  # of sbatch, whose words it has
            raise SpecError(f"the workers could not be submitted: {error}", path=("executor", "slurm")) from None
        self._submitted += tasks
        return tasks

    async def start(self, number: int) -> Channel:
        task = self._tasks.pop(number, None) or (await self._submit([number]))[0]

        def end() -> None:
            with suppress(Exception):
                task.cancel()

        joining = asyncio.ensure_future(self._sockets.join(number, PATIENCE, end))
        try:
            while not joining.done():
                await asyncio.wait([joining], timeout=_LOOK)
                if not joining.done() and await asyncio.to_thread(task.done):
                    raise WorkerLost(f"task {task.job_id} ended before it joined: {_last_line(task)}")
            return joining.result()
        finally:
            joining.cancel()

    async def aclose(self) -> None:
        self._sockets.close()
        for task in self._tasks.values():  # submitted, and never asked for
            with suppress(Exception):
                task.cancel()
        for task in self._submitted if self.cluster == "local" else ():  # they are processes of this one
            while not task.done():
                await asyncio.sleep(0.05)


def _last_line(task: Any) -> str:
    """The last line of a task's standard error, and where the rest is."""
    path = Path(str(task.paths.stderr))
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    said = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return f"{said[:200]} ({path})"

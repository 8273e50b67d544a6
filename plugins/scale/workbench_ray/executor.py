"""The executor `ray`: each worker is an actor. Where it runs, on which machine and whether one is started for it, is
decided by Ray."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pydantic import Field, PrivateAttr, model_validator

from workbench.base.distribution import pip_install
from workbench.errors import PluginError, SpecError
from workbench.spec import connect, home_folder, start_program
from workbench_ray.actor import WorkerActor
from workbench_ray.channel import ActorChannel, describe
from workbench_workers import Channel, Executor, WorkerLost, WorkerSetup

#: Seconds in which a cluster's head must take a connection.
_CONNECT = 10.0
#: Seconds that a head which restarts has to come back. Ray ends a process whose head is gone for a minute, and a run
#: that has lost all of its workers is to end before, with a report.
_HEAD_BACK = 15.0
#: Seconds that a worker may wait for its place: a cluster that grows starts a machine.
PATIENCE = 900.0


class Ray(Executor):
    """Workers on a Ray cluster, or in a Ray that is started on this machine."""

    address: str | None = Field(
        None, description="of the cluster: auto, or HOST:PORT of its head; without it, RAY_ADDRESS or a Ray here"
    )
    num_cpus: float = Field(1.0, ge=0, description="CPUs of a worker; 0 where it only waits for servers")
    num_gpus: float = Field(0.0, ge=0, description="GPUs of a worker, for `hf:` models")
    memory: float | None = Field(None, gt=0, description="GiB of a worker, so that Ray places it where they are free")
    resources: dict[str, float] = Field(
        default={}, description="custom resources of a worker, as the cluster names them"
    )
    runtime_env: dict[str, Any] = Field(
        default={},
        description="Ray's runtime environment of the workers, e.g. {pip: [...]}; without a working_dir, the files "
        "that the workflow names are shipped to other machines",
    )

    _setup: WorkerSetup = PrivateAttr()
    _shipped: str | None = PrivateAttr(None)
    _ours: bool = PrivateAttr(False)

    @model_validator(mode="after")
    def _enter(self) -> Self:
        if self.address:
            connect(self.address, "address")
        if self.runtime_env:  # settings of another program, which may run commands
            start_program(f"runtime_env: {json.dumps(self.runtime_env, default=str)}", home_folder(), form="")
        return self

    async def open(self, setup: WorkerSetup) -> None:
        try:
            import ray
        except ImportError:
            raise PluginError(f"executor: ray needs the package ray: {pip_install('scale[ray]')}") from None
        self._setup = setup
        if not ray.is_initialized():
            await asyncio.to_thread(self._connect)
            if (self.address or os.environ.get("RAY_ADDRESS")) is None:
                self._check_room(await asyncio.to_thread(ray.cluster_resources))

    def _check_room(self, total: Mapping[str, float]) -> None:
        """Raise SpecError for workers that a Ray on this machine can never place: it does not grow. CPUs are as many as
        they need."""
        asked = {"GPU": self.num_gpus, "memory": (self.memory or 0.0) * 2**30, **self.resources}
        for what, of_each in asked.items():
            if of_each * self.workers > (there := total.get(what, 0.0)):
                unit = 2**30 if what == "memory" else 1
                raise SpecError(
                    f"{self.workers} workers need {of_each * self.workers / unit:g} of {what}, and here are "
                    f"{there / unit:g}",
                    hint="Have fewer workers, or give the address of a cluster that has it.",
                    path=("executor", "ray"),
                )

    def _connect(self) -> None:
        import ray

        address = self.address or os.environ.get("RAY_ADDRESS")
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
        if address is None:
            cpus = max(os.cpu_count() or 1, math.ceil(self.workers * self.num_cpus))
            settings |= {"num_cpus": cpus, "include_dashboard": False, "address": "local"}
        else:
            settings["address"] = address
        try:
            _check_listens(address)
            with tempfile.TemporaryDirectory(prefix="workbench-ship-") as folder:
                if address is not None:
                    settings["runtime_env"] = self._pack(Path(folder)) or None
                ray.init(**settings)  # which has taken the folder when it returns
            self._ours = True
        except Exception as error:
            raise SpecError(
                f"there is no Ray cluster at {address or 'this machine'}: {describe(error)}",
                hint="Start one with `ray start --head`, or leave out the address. If there is one, and it was started "
                "where Ray has a token, set RAY_AUTH_MODE=token here.",
                path=("executor", "ray", "address"),
            ) from None

    def _pack(self, folder: Path) -> dict[str, Any]:
        """Copy the files that rows need into a folder. Ray ships it to each machine, once for equal content."""
        if "working_dir" in self.runtime_env:
            return {}
        base = self._setup.base
        files = [Path(os.path.normpath(base / name)) for name in self._setup.files]  # a link stays where it is
        root = Path(os.path.commonpath([base, *(path.parent for path in files)]))
        for path in files:
            place = folder / path.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)  # a program stays one that can be run
        (folder / base.relative_to(root)).mkdir(parents=True, exist_ok=True)
        (folder / "_workbench").touch()  # Ray refuses an empty folder
        self._shipped = str(base.relative_to(root))
        return {"working_dir": str(folder)}

    async def start(self, number: int) -> Channel:
        import ray

        await _find_head(number)
        options: dict[str, Any] = {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "resources": self.resources or None,
            "memory": None if self.memory is None else int(self.memory * 2**30),
            "runtime_env": self.runtime_env or None,
            "max_restarts": 0,  # a new actor takes its place
            "max_concurrency": 1000,
        }
        actor: Any = ray.remote(WorkerActor).options(**{k: v for k, v in options.items() if v is not None}).remote()
        try:
            async with asyncio.timeout(PATIENCE):
                await actor.begin.remote(self._setup, self._shipped)
        except asyncio.CancelledError:
            with suppress(Exception):
                ray.kill(actor)
            raise
        except TimeoutError:
            with suppress(Exception):
                ray.kill(actor)
            raise WorkerLost(f"worker {number}: the cluster had no place for it within {PATIENCE:g} s") from None
        except Exception as error:
            if "No module named 'workbench" in str(error):
                raise SpecError(
                    f"worker {number}: workbench {self._setup.version} is not installed on its machine",
                    hint="Install the same version on every machine of the cluster, or name it in runtime_env.",
                ) from None
            raise WorkerLost(f"worker {number}: {describe(error)}") from None
        return ActorChannel(actor, f"worker {number}")

    async def aclose(self) -> None:
        import ray

        if self._ours:
            with suppress(Exception):
                await asyncio.to_thread(ray.shutdown)


async def _find_head(number: int) -> None:
    """Raise WorkerLost where the cluster's head is gone: a worker would be asked for without an answer."""
    import ray

    end = time.monotonic() + _HEAD_BACK
    while True:
        try:
            return await asyncio.to_thread(_check_listens, ray.get_runtime_context().gcs_address)
        except OSError as error:
            if time.monotonic() > end:
                raise WorkerLost(f"worker {number}: the cluster's head is gone ({error})") from None
        await asyncio.sleep(min(1.0, _HEAD_BACK))


def _check_listens(address: str | None) -> None:
    """Raise OSError if nothing listens at HOST:PORT or ray://HOST:PORT. Ray would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()

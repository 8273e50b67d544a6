"""An executor of the tests whose workers are tasks of the driver's loop: no process starts, messages are pickled."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

from pydantic import PrivateAttr

from workbench_workers import Channel, Executor, WorkerSetup, work


class TaskLine:
    """Both ends of a line, and the worker at one of them."""

    def __init__(self, setup: WorkerSetup, heard: list[str]):
        self._there: asyncio.Queue[bytes] = asyncio.Queue()
        self._here: asyncio.Queue[bytes] = asyncio.Queue()
        self._heard = heard
        self.worker = asyncio.create_task(work(setup, _WorkersEnd(self._there, self._here)))

    async def send(self, batch: Sequence[Any]) -> None:
        self._there.put_nowait(pickle.dumps(batch))

    async def receive(self) -> Sequence[Any]:
        return pickle.loads(await self._here.get())

    async def aclose(self) -> None:
        self._heard.append("ended" if self.worker.done() else "killed")
        self.worker.cancel()
        await asyncio.gather(self.worker, return_exceptions=True)


class _WorkersEnd:
    def __init__(self, came: asyncio.Queue[bytes], going: asyncio.Queue[bytes]):
        self._came, self._going = came, going

    def send(self, message: Any) -> None:
        self._going.put_nowait(pickle.dumps([message]))

    async def receive(self) -> Sequence[Any]:
        return pickle.loads(await self._came.get())


class Tasks(Executor):
    """Workers as tasks. heard: what happened, in order. late: the workers from 1 on start when it is set."""

    _setup: WorkerSetup = PrivateAttr()
    _heard: list[str] = PrivateAttr(default_factory=list[str])
    _late: asyncio.Event | None = PrivateAttr(None)

    async def open(self, setup: WorkerSetup) -> None:
        self._setup = setup

    async def start(self, number: int) -> Channel:
        if number and self._late is not None:
            await self._late.wait()
        return TaskLine(self._setup, self._heard)

    async def aclose(self) -> None:
        self._heard.append("closed")

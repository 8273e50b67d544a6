"""The actor that is a worker: it runs rows in its event loop, and exchanges messages with the driver."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench_ray.in_order import Incoming, Outgoing
from workbench_workers import WorkerSetup, find_missing, work

#: Seconds that messages are gathered for one exchange. An exchange costs the driver half a millisecond of CPU.
WINDOW = 0.005


class WorkerActor:
    """A worker. Ray makes an actor of it."""

    def __init__(self) -> None:
        self._incoming, self._outgoing = Incoming(), Outgoing()
        self._came: asyncio.Queue[Sequence[Any]] = asyncio.Queue()
        self._queued: list[Any] = []
        self._turn = 0  # of the latest exchange, which waits; an earlier one returns
        self._news = asyncio.Event()

    async def begin(self, setup: WorkerSetup, shipped: str | None) -> None:
        """Begin to run rows. The setup comes by this call, whose arguments nothing keeps. shipped: where the folder of
        the workflow file lies in what came with the actor, for a machine that does not have it."""
        if shipped is not None and find_missing(setup):
            setup = replace(setup, base=Path(os.getcwd(), shipped))
        self._working = asyncio.create_task(work(setup, self))

    async def exchange(self, packed: bytes) -> bytes:
        """Take a batch from the driver, and return one to it: as soon as there is any, or the next exchange begins."""
        self._turn += 1
        turn = self._turn
        self._news.set()
        if packed and (batch := [*self._incoming.unpack(packed)]):
            self._came.put_nowait(batch)
        while not self._queued and self._turn == turn:
            self._news.clear()
            await self._news.wait()
        if not self._queued:
            return b""
        await asyncio.sleep(WINDOW)
        batch, self._queued = self._queued, []
        return self._outgoing.pack(batch) if batch else b""

    # The worker's end of the line

    def send(self, message: Any) -> None:
        self._queued.append(message)
        self._news.set()

    async def receive(self) -> Sequence[Any]:
        return await self._came.get()

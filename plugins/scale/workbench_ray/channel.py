"""The driver's end of the line to an actor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from workbench_ray.actor import WINDOW
from workbench_ray.in_order import Incoming, Outgoing
from workbench_workers import WorkerLost


class ActorChannel:
    """Exchanges batches with an actor: one call of it is always under way, and brings what the actor has to say."""

    def __init__(self, actor: Any, name: str):
        self._actor, self._name, self._loop = actor, name, asyncio.get_running_loop()
        self._incoming, self._outgoing = Incoming(), Outgoing()
        self._came: asyncio.Queue[list[Any] | WorkerLost] = asyncio.Queue()
        self._queued: list[Any] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False

    async def send(self, batch: Sequence[Any]) -> None:
        self._queued += batch
        self._flush_soon()

    async def receive(self) -> Sequence[Any]:
        if not self._under_way:
            self._flush_soon()
        came = await self._came.get()
        if isinstance(came, WorkerLost):
            self._came.put_nowait(came)
            raise came
        return came

    def _flush_soon(self) -> None:
        if self._flushing is None and not self._closed:
            self._flushing = self._loop.call_later(WINDOW, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        if self._closed:
            return
        batch, self._queued = self._queued, []
        task = self._loop.create_task(self._exchange(self._outgoing.pack(batch) if batch else b""))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _exchange(self, packed: bytes) -> None:
        try:
            answer: bytes = await self._actor.exchange.remote(packed)
        except Exception as error:
            self._came.put_nowait(WorkerLost(f"{self._name}: {describe(error)}"))
            return
        if answer and (batch := [*self._incoming.unpack(answer)]):
            self._came.put_nowait(batch)
        if len(self._under_way) == 1:  # this one
            self._flush_soon()

    async def aclose(self) -> None:
        import ray

        self._closed = True
        for task in self._under_way:
            task.cancel()
        with suppress(Exception):
            ray.kill(self._actor)


def describe(error: BaseException) -> str:
    """Ray's error in a line: its messages have many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"

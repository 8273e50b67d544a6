"""The driver's half of an executor: rows are handed out to workers, and workers that end are replaced."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from workbench.errors import FailureKind, PluginError, ServerDead, SpecError
from workbench.runtime import Draw, Runtime
from workbench.task import Example
from workbench.workflow import ExampleRun, Trace, Workflow
from workbench_workers.member import Member
from workbench_workers.messages import WorkerLost

if TYPE_CHECKING:
    from workbench_workers.executor import Executor, WorkerSetup

#: So many workers may end under a row among others; then it gets one for itself, since it may be what ends them. So
#: many may end under it alone before it is given up.
MAX_DEATHS, MAX_ALONE = 2, 3
#: So many workers may end in one place before they are ready, one after the other, before it stays empty.
MAX_STARTS = 3


class Crew:
    """The workers of a run.

    executor: starts them. tell: is given what the user should know, as (event, **values). rows: at once, of which
    each worker takes its part, also while the others are not there yet; without it, all that come.
    """

    def __init__(
        self,
        executor: Executor,
        runtime: Runtime,
        setup: WorkerSetup,
        tell: Callable[..., None] = lambda event, **values: None,
        rows: int | None = None,
    ):
        self.executor, self._runtime, self._setup, self._tell = executor, runtime, setup, tell
        self._most = math.inf if rows is None else math.ceil(rows / executor.workers)  # rows of a worker
        self._members: dict[int, Member] = {}  # those that take rows, by place
        self._places: list[asyncio.Task[None]] = []
        self._coming = 0  # workers that are being started
        self._waiting = 0  # rows that wait for a worker
        self._changed = asyncio.Condition()
        self._opening, self._opened = asyncio.Lock(), False
        self._rows = itertools.count(1)
        self._reasons: list[str] = []  # why there is a worker less
        self._refused = False
        self._broken: Exception | None = None
        self._warnings: dict[str, None] = {}
        self._kept_state: dict[str, None] = {}

    async def open(self) -> None:
        """Start the workers, and wait for the first. Raises SpecError or PluginError if none can come."""
        async with self._opening:
            if not self._places:
                self._opened = True
                await self.executor.open(self._setup)
                self._coming = self.executor.workers
                self._places = [asyncio.create_task(self._fill(place)) for place in range(self.executor.workers)]
        await self._choose()

    async def run(self, workflow: Workflow, example: Example, draw: Draw) -> ExampleRun:
        """Run a row on the worker that has the fewest. Raises what ends it: BudgetSpent, say."""
        if not self._places:
            await self.open()
        lost: list[str] = []
        while len(lost) < MAX_DEATHS + MAX_ALONE:
            member = await self._choose(alone=len(lost) >= MAX_DEATHS)
            try:
                outcome, ended = await member.run(next(self._rows), workflow, example, draw)
            except WorkerLost as error:
                lost.append(str(error))
                continue
            finally:
                await self._free(member)
            self._warnings |= dict.fromkeys(ended.warnings)
            self._kept_state |= dict.fromkeys(ended.kept_state)
            return outcome
        message = f"{len(lost)} workers ended while they ran this row, the last: {lost[-1]}"
        return ExampleRun({}, Trace(example.id), FailureKind.WORKER, message)

    async def _choose(self, alone: bool = False) -> Member:
        """The member with the fewest rows, for which may have to be waited; alone: one without, which is held."""
        self._waiting += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._free_members(alone) or not (self._members or self._coming))
        finally:
            self._waiting -= 1
        if free := self._free_members(alone):
            chosen = min(free, key=lambda member: len(member.rows))
            chosen.held = alone
            return chosen
        said = "; ".join(dict.fromkeys(self._reasons[-MAX_STARTS:]))
        if self._broken is not None:
            raise PluginError(f"the executor {type(self.executor).__name__} is broken: {said}") from self._broken
        if self._refused:
            raise SpecError(f"no worker can run the rows: {said}", path=("executor",))
        raise ServerDead(f"there is no worker left: {said}")

    def _free_members(self, alone: bool) -> list[Member]:
        most = 1 if alone else self._most
        return [one for one in self._members.values() if not (one.held or one.is_lost) and len(one.rows) < most]

    async def _free(self, member: Member) -> None:
        member.held = False
        if self._waiting:
            async with self._changed:
                self._changed.notify_all()

    async def _fill(self, place: int) -> None:
        """Start a worker, and another whenever it is lost."""
        idle = 0  # workers in a row that were never ready
        while idle < MAX_STARTS:
            member: Member | None = None
            try:
                member = Member(await self.executor.start(place), self._runtime)
                await member.greet()
                await self._change(place, member)
                self._tell("worker_started", worker=member.name, workers=len(self._members))
                await member.serve()
            except SpecError as refused:
                self._refused = True
                await self._lose(place, member, refused.message)
                break
            except WorkerLost as lost:
                idle = 0 if member is not None and member.name else idle + 1
                await self._lose(place, member, str(lost), again=idle < MAX_STARTS)
            except Exception as error:  # a bug of the executor
                self._broken = error
                await self._lose(place, member, f"{type(error).__name__}: {error}")
                break
            finally:
                if member is not None:
                    await member.aclose()

    async def _change(self, place: int, member: Member) -> None:
        async with self._changed:
            self._members[place] = member
            self._coming -= 1
            self._changed.notify_all()

    async def _lose(self, place: int, member: Member | None, reason: str, again: bool = False) -> None:
        self._reasons.append(reason)
        async with self._changed:
            was_there = self._members.pop(place, None) is not None
            self._coming += again - (not was_there)
            self._changed.notify_all()
        in_flight = member.in_flight if member is not None else 0
        rows = len(member.rows) if member is not None else 0
        self._tell("worker_lost", reason=reason, rows=rows, calls=in_flight, workers=len(self._members))

    def warnings(self) -> list[str]:
        """As `Runtime.warnings`, of all workers."""
        return [*self._warnings]

    def kept_state(self) -> list[str]:
        """As `Runtime.kept_state`, of all workers."""
        return [*self._kept_state]

    async def aclose(self) -> None:
        """End all workers."""
        places, self._coming = self._places, 0
        for place in places:
            place.cancel()
        await asyncio.gather(*places, return_exceptions=True)
        if self._opened:
            with suppress(Exception):  # also after an `open` that raised
                await self.executor.aclose()

"""A world that lives as long as a node's run on a row: played step by step, and never restored.

Each answer of the world is an effect under its number in the row. So a resumed run reads known answers from the
journal, and opens the world only when it continues beyond them. Then the same actions are repeated first, and an
observation that differs is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.base.hashing import digest
from workbench.errors import NodeError
from workbench.runtime import Context
from workbench_worlds.process import RowProcess, WorldKeeper, WorldPlace

_SHOWN = 300


class LiveWorld:
    """The world of one run of a node. settings: of its class."""

    def __init__(self, place: WorldPlace, settings: Mapping[str, Any], ctx: Context):
        self.place, self.settings, self.ctx = place, settings, ctx
        self._process: RowProcess | None = None
        self._task = ""
        self._known: list[tuple[dict[str, Any], dict[str, Any]]] = []

    async def reset(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first observation, and the player who acts on it."""
        self._task = digest(task)
        return await self._told({"do": "reset", "settings": dict(self.settings), "task": dict(task)})

    async def step(self, action: Any) -> dict[str, Any]:
        """Return the observation after an action, and the player who acts next."""
        return await self._told({"do": "step", "action": action})

    async def score(self) -> tuple[float, str]:
        """Return the world's own score, in [0, 1], and its verdict on the end; "" for none."""
        told = await self._told({"do": "score"})
        score = told["score"]
        if not 0.0 <= score <= 1.0:
            raise NodeError("environment", f"{self.place.address}: a score must be in [0, 1], and this is {score}")
        return score, told.get("verdict") or ""

    async def _told(self, request: dict[str, Any]) -> dict[str, Any]:
        async def run() -> dict[str, Any]:
            try:
                return await (await self._opened()).ask(request, self.ctx.program.runtime.timeout)
            except NodeError as error:
                return {"failure": str(error)}

        content = [self.place.address, self._task, len(self._known), request]
        told: dict[str, Any] = await self.ctx.effect("world", content, run)
        if "failure" in told:
            raise NodeError("environment", told["failure"])
        self._known.append((request, told))
        return told

    async def _opened(self) -> RowProcess:
        """Return the process, in the state of the row. Raises NodeError if it develops differently than before."""
        if self._process is None:
            name = f"world {self.place}"
            keeper = await self.ctx.shared(name, lambda: WorldKeeper.open(self.place))
            self._process = await keeper.begin()
            for number, (request, told) in enumerate(self._known):
                again = await self._process.ask(request, self.ctx.program.runtime.timeout)
                if again != told:
                    self._tell_difference(number, told, again)
        return self._process

    def _tell_difference(self, number: int, told: Mapping[str, Any], again: Mapping[str, Any]) -> None:
        if again.get("repeats") is False:
            self.ctx.note(differed=[*self.ctx.span.notes.get("differed", []), number])
            return
        before, now = (str(one.get("observation", one))[:_SHOWN] for one in (told, again))
        why = f"action {number} led to {before!r}, and now to {now!r}; a world with a clock says `repeats = False`"
        raise NodeError("environment", f"{self.place.address} went another way when it was resumed: {why}")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()

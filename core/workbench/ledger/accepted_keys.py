"""Models whose key was accepted: if one refuses a request later, its key is not at fault."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from workbench.store import Journal


class AcceptedKeys:
    """The models that answered, and requests of models with no outcome yet. Models are named by identity."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._answered = journal, set[str]()
        self._in_flight = defaultdict[str, set[asyncio.Future[None]]](set)

    def send(self, lm: str) -> asyncio.Future[None]:
        """Record a request. Pass the returned future to `end`."""
        self._in_flight[lm].add(done := asyncio.get_running_loop().create_future())
        return done

    def end(self, lm: str, done: asyncio.Future[None]) -> None:
        self._in_flight[lm].discard(done)
        done.set_result(None)

    def accept(self, lm: str) -> None:
        """Record an answer."""
        self._answered.add(lm)

    async def is_accepted(self, lm: str, done: asyncio.Future[None]) -> bool:
        """Return True if the model ever answered, or answers a request in flight together with this one, `done`. The
        order in which they return is no evidence about the key."""
        sent = self._in_flight[lm]
        sent.discard(done)
        while lm not in self._answered and sent:
            await asyncio.wait([*sent], return_when=asyncio.FIRST_COMPLETED)
        return lm in self._answered or self._journal.has_answered(lm)

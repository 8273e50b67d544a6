"""Which models accepted their key, so that one that refuses a request later does not refuse the key."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from workbench.store import Journal


class AcceptedKeys:
    """The models that answered, and those of whose requests no outcome is known yet. Models go by their identity."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._answered = journal, set[str]()
        self._in_flight = defaultdict[str, set[asyncio.Future[None]]](set)

    def send(self, lm: str) -> asyncio.Future[None]:
        """Note a request. Give what is returned to `end`."""
        self._in_flight[lm].add(done := asyncio.get_running_loop().create_future())
        return done

    def end(self, lm: str, done: asyncio.Future[None]) -> None:
        self._in_flight[lm].discard(done)
        done.set_result(None)

    def accept(self, lm: str) -> None:
        """Note an answer."""
        self._answered.add(lm)

    async def is_accepted(self, lm: str, done: asyncio.Future[None]) -> bool:
        """Return True if the model ever answered, or answers a request that was in flight with this one, `done`. Which
        of them comes back first says nothing of the key."""
        sent = self._in_flight[lm]
        sent.discard(done)
        while lm not in self._answered and sent:
            await asyncio.wait([*sent], return_when=asyncio.FIRST_COMPLETED)
        return lm in self._answered or self._journal.has_answered(lm)

"""The number of concurrent requests to a language model: reduced after a rate limit, slowly raised after success."""

from __future__ import annotations

import asyncio
from collections import deque

from workbench.errors import LMError


class Pause:
    """The pause of a language model. until: earliest time, by the loop's clock, at which any caller may send to it
    again; 0 before the first pause."""

    until = 0.0


class AdaptiveLimiter:
    """A semaphore whose size follows the server: halved on a rate limit, grown by one for each full round.

    All waiters share one pause: a Retry-After stops all requests, not only the one that got it. pause: shared with
    limiters of the same model in other places, whose requests use the same key.
    """

    def __init__(self, size: int, pause: Pause | None = None):
        self.size = self.largest = max(1, size)
        self.busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._successes = 0
        self._last_cut = float("-inf")
        self._pause = pause or Pause()
        self.pauses = 0  # in a row, without an answer in between

    async def __aenter__(self) -> None:
        await self._take()
        try:
            await self.outlast_pause()
        except asyncio.CancelledError:
            self._release()
            raise

    async def outlast_pause(self) -> bool:
        """Wait until the pause is over, even if it is extended meanwhile. Returns True if there was one."""
        waited = False
        while self._pause.until and (wait := self._pause.until - asyncio.get_running_loop().time()) > 0:
            waited = True
            await asyncio.sleep(wait)
        return waited

    async def _take(self) -> None:
        if self.busy < self.size and not self._waiting:
            self.busy += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the slot was handed over in the moment of cancellation
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._release()

    def _release(self) -> None:
        self.busy -= 1
        while self._waiting and self.busy < self.size:
            turn = self._waiting.popleft()
            if not turn.done():
                self.busy += 1
                turn.set_result(None)

    def learn(self, error: LMError | None, pause: float) -> int | None:
        """Adapt to the outcome of a request. After an answer the size may grow. After a rate limit all requests wait
        `pause` seconds, the size is halved and the pause counted, at most once a second, since one burst brings many.
        Returns the size before it was halved, else None."""
        before = self.size
        if error is None:
            self.pauses = 0
            self._successes += 1
            if self._successes >= self.size and self.size < self.largest:
                self.size, self._successes = self.size + 1, 0
        elif error.kind == "rate_limit":
            now = asyncio.get_running_loop().time()
            self._pause.until = max(self._pause.until, now + pause)
            if now - self._last_cut > 1.0:
                self._last_cut, self.size, self._successes = now, max(1, self.size // 2), 0
                self.pauses += 1
                return before if self.size < before else None
        return None

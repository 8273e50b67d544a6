"""The decision to retry a failed attempt, and the pause before it.

A rate limit is no evidence about the call, so it uses up none of its attempts. All calls to a model wait for its end
together (`AdaptiveLimiter`). A call gives up only if it alone is refused repeatedly while others are answered.

The number of concurrent requests to a language model: reduced after a rate limit, slowly raised after success.

Models whose key was accepted: if one refuses a request later, its key is not at fault.

Detection of a dead server: many calls in a row that failed for good, retries included.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque

from workbench.errors import FailureKind, LMError, ServerDead
from workbench.lm import Pieces
from workbench.spec import LMSpec
from workbench.store import Journal

#: The longest pause in seconds, even if the server asks for more.
LONGEST_PAUSE = 120.0

#: The number of rate limits that ends a call while others are answered.
MAX_RATE_LIMITS = 20

#: The number of pauses in a row, without an answer of the model in between, that stops the run. Doubled from half a
#: second up to LONGEST_PAUSE, they take about ten minutes.
MAX_PAUSES = 12


class Attempts:
    """The failed attempts of one call. With `attempts: 1` nothing is retried.

    pieces: the answer's parts on their way to a waiting client. Nothing is retried once the client has a part, or after
    a timeout, when its own deadline must have passed: it can ask again. A failure that is passed on unchanged is the
    client's to retry, as it would be without us, unless the settings name `attempts`. Rate limits are an exception,
    because our concurrent calls cause them.
    """

    def __init__(self, spec: LMSpec, pieces: Pieces | None = None):
        self.limit, self.failed, self.rate_limits = spec.attempts, 0, 0
        self._pieces, self._tells = pieces, "attempts" not in spec.model_fields_set

    def again(self, error: LMError) -> bool:
        """Count a failure. Return True if the call should be retried."""
        if self._pieces is not None and (self._pieces.source.begun or error.kind == FailureKind.TIMEOUT):
            self.failed += 1
            return False
        if error.kind == FailureKind.RATE_LIMIT:
            self.rate_limits += 1
            return self.limit > 1 and self.rate_limits < MAX_RATE_LIMITS
        self.failed += 1
        if self._tells and error.passed is not None:
            return False
        return error.kind.retryable and self.failed < self.limit


def pause_before(attempt: int, asked: float | None, jitter: random.Random) -> float:
    """Return the seconds before an attempt: doubled each time, at least what the server asks for, bounded, with jitter.

    attempt: failures so far, of the call or, after a rate limit, of the model, from 1. asked: Retry-After in seconds.
    """
    wait = 0.25 * 2 ** min(attempt, 20)
    if asked is not None and asked > wait:
        wait = asked
    return min(wait, LONGEST_PAUSE) * jitter.uniform(1.0, 1.25)


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


#: Failures in a row of one model, of kinds typical for a dead server, that stop the run.
DEAD_AFTER = 20


class FailureStreak:
    """The latest calls of each model that failed in a row as with a dead server. An answer of the same model ends its
    streak. Answers of other models do not, since the judge's server may be dead while the task's works."""

    def __init__(self, journal: Journal):
        self._journal = journal
        self._keys = dict[str, list[str]]()

    def clear(self) -> None:
        self._keys.clear()

    def add(self, lm: str, key: str, error: LMError | None, stopping: BaseException | None) -> ServerDead | None:
        """Count the outcome of a call. Returns the error to stop with if the server is dead, or if the run is already
        `stopping` because of it. The failures are then deleted, so that a resumed run asks again."""
        keys = self._keys.setdefault(lm, [])
        if error is None or not error.kind.dead_server:
            keys.clear()
            return None
        keys.append(key)
        if stopping is None and len(keys) >= DEAD_AFTER:
            stopping = ServerDead(f"{DEAD_AFTER} calls in a row failed, the last with: {error}")
        if not isinstance(stopping, ServerDead):
            return None
        for dead in keys:
            self._journal.delete_call(dead)
        keys.clear()
        return stopping

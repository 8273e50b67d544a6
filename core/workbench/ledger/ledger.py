"""The ledger, the only place where paid calls are reserved, recorded and settled.

A call is answered from the journal if its content key is there. Otherwise its worst case is reserved against the
budget, the request is committed and sent, and the answer is committed before any caller sees it. So a run that is
replayed from its start pays for no recorded call again. A ceiling on calls is never exceeded. One on tokens or dollars
can be exceeded only by the error of the first estimates of prompt lengths, and by answers to requests of an agent that
name no limit (`Request.native`): for those `Request.max_tokens` is a guess.

Two counts are kept. `spent` is what the run has used up to this point, replayed calls included. Optimizers see only
this one, so a resumed run decides as the first one did. `sent` counts all requests ever sent, including those of
earlier processes and those with unknown outcome. It guards the ceiling.

With `reuse`, answers of earlier runs are reused. They count in `reused`, not in `paid`. In a search they also count in
`spent`, as in the run that paid for them, so that a repeated run ends the same and pays nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import FailureKind, LMError, ServerDead
from workbench.ledger.ceilings import Ceilings
from workbench.ledger.cut_prompts import CutPrompts
from workbench.ledger.recalled import NoJournal, Recalled, RecalledCalls, tell_recalled
from workbench.ledger.retry import (
    MAX_PAUSES,
    AcceptedKeys,
    AdaptiveLimiter,
    Attempts,
    FailureStreak,
    Pause,
    pause_before,
)
from workbench.ledger.spend import Bill, CallInfo, PriceCheck, Settled, Spend, estimate_prompt, price_of, unknown_price
from workbench.lm import LM, MAX_TOKENS, Request, Response, check_length, split_page
from workbench.spec import BudgetSpec, LMSpec
from workbench.store import EarlierCalls, Journal, Store, dumps


@dataclass
class Ledger:
    """Budget and journal of one run.

    on_call is called with every settled call, on_slowed with a model's identity and its concurrent requests before and
    after a rate limit. With `recorded=False` nothing is journalled: equal calls are sent again, and memory does not
    grow with their number. reuse: take answers of earlier runs. searching: also count them in `spent`. source: the run
    to repeat; only its answers and effects are reused.
    """

    store: Store
    run_id: int
    budget: BudgetSpec
    on_call: Callable[[CallInfo], None] | None = None
    earlier_seconds: float = 0.0  # used by earlier processes of this run
    spent: Spend = field(default_factory=Spend)
    by_role: dict[str, Spend] = field(default_factory=lambda: defaultdict(Spend))
    largest_prompt: dict[str, int] = field(default_factory=dict[str, int])  # in tokens, by role
    retries: int = 0
    stopping: BaseException | None = None  # raised instead of sending anything else
    recorded: bool = True
    reuse: bool = False
    searching: bool = False
    source: int | None = None
    on_slowed: Callable[[str, int, int], None] = lambda identity, before, after: None

    def __post_init__(self) -> None:
        self.started, self.prices, self.cut_prompts = time.monotonic(), PriceCheck(), CutPrompts()
        # Paid by this run in all its processes, reused from earlier runs, and everything ever sent.
        self.paid, self.reused, self.sent = Spend(), Spend(), Spend()
        self.journal = (Journal if self.recorded else NoJournal)(self.store, self.run_id)
        self.bill, self._earlier = Bill(self.store, self.journal), EarlierCalls(self.store, self.run_id, self.source)
        self._recalled = RecalledCalls(self, self.journal, self._earlier)
        self._flying: dict[str, asyncio.Future[Settled]] = {}
        self.touched: set[bytes] = set()  # half of the key of each call counted in `spent`
        self._limiters: dict[tuple[str, str], AdaptiveLimiter] = {}  # by model, and by the place that sends
        self._pauses: dict[str, Pause] = defaultdict(Pause)  # by model
        self.ceilings = Ceilings(self)
        self._open = self._resumed = False  # resumed: earlier processes sent something; else lookups can be skipped
        self._random = random.SystemRandom()  # no result depends on it: delays, names of attempts, keys never looked up
        self._failures = FailureStreak(self.journal)
        self._refused: dict[str, LMError] = {}  # by model: its key was rejected, so send nothing more to it
        self._keys = AcceptedKeys(self.journal)
        self.longer_prompts: dict[str, float] = {}  # by model: a factor for estimates of prompt lengths
        self._failed: dict[str, int] = {}  # by key: failed attempts of calls not yet settled, as counted in `spent`

    def open(self) -> None:
        """Count the requests of earlier processes of this run. Called by the first call, under the run's lock."""
        if not self._open:
            self._open = True
            self.sent = self.bill.sent()
            self._resumed = self.sent.calls > 0 or self.journal.has_answer()

    @property
    def resumed(self) -> bool:
        """Return True if earlier processes of this run sent anything."""
        self.open()
        return self._resumed

    # Budget

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.monotonic() - self.started

    def reserve_for_proof(self, *, calls: float = 0, tokens: float = 0, usd: float = 0, minutes: float = 0) -> None:
        """Reserve for the sealed test what search may not use. A later call replaces the earlier reserve."""
        self.ceilings.reserve_for_proof(calls=calls, tokens=tokens, usd=usd, minutes=minutes)

    def remaining(self, what: str = "calls") -> float:
        """Return what search may still use of `calls`, `tokens`, `usd` or `minutes`; infinite without a ceiling."""
        return self.ceilings.remaining(what)

    # Calls

    async def call(self, lm: LM, request: Request, role: str, spec: LMSpec) -> Settled:
        """Answer a request from the journal or the model.

        A call that fails for good is settled with its error, which is journalled, too. A call that could pass a ceiling
        only together with calls in flight waits for them. Raises BudgetSpent, and sends nothing, if it could pass one
        by itself.
        """
        self.open()
        if not self.recorded:  # no other call waits for this one or repeats it
            key = f"{self._random.getrandbits(128):032x}"
            try:
                return await self._pay(lm, request, role, spec, key)
            finally:
                self._failed.pop(key, None)
        key = request.key(lm.identity)
        while True:
            if (settled := self._recalled.replay(key, role)) is not None:
                return tell_recalled(lm, request, settled)
            flying = self._flying.get(key)
            if flying is None:
                return await self._first(key, lm, request, role, spec)
            # The same request is in flight: wait for it, and start over if it was cancelled.
            await asyncio.wait([flying])
            if not flying.cancelled() and (error := flying.exception()) is not None:
                raise error

    async def _first(self, key: str, lm: LM, request: Request, role: str, spec: LMSpec) -> Settled:
        flying = self._flying[key] = asyncio.ensure_future(self._pay(lm, request, role, spec, key))
        try:
            return await flying
        finally:
            del self._flying[key]

    async def recall(self, key: str, role: str) -> Recalled:
        """Return a call of this run or of the `source`, counted as if asked again, with its request; or None."""
        self.open()
        return Recalled(await self._recalled.find(key, role), self.journal.read_call(key))

    async def _pay(self, lm: LM, request: Request, role: str, spec: LMSpec, key: str) -> Settled:
        if (settled := await self._recalled.take_over(key, lm, request, role)) is not None:
            return tell_recalled(lm, request, settled)
        limited = lm.identity, getattr(lm, "place", "")
        if (limiter := self._limiters.get(limited)) is None:
            limiter = self._limiters[limited] = AdaptiveLimiter(
                spec.concurrency or lm.concurrency, self._pauses[lm.identity]
            )
        if (ready := getattr(lm, "ready", None)) is not None:
            ready()  # before anything is reserved: a call that cannot be sent does not count
        if key not in self._failed:
            self._failed[key] = self._recalled.count_failed_attempts(key, role)
        begun, requested, attempts = time.monotonic(), 0.0, Attempts(spec, request.pieces)
        estimate = estimate_prompt(request)
        while True:
            async with limiter:
                held = await self._reserve(lm, request, estimate, limiter)
                sent, attempt = time.monotonic(), self._random.getrandbits(48)
                response, error = await self._attempt(lm, request, role, spec, key, attempt, held)
                if error is None or error.kind != "rate_limit":  # a rate limit is no evidence about the call
                    requested += getattr(lm, "seconds", None) or time.monotonic() - sent
                again, pause = error is not None and attempts.again(error), 0.0
                if error is not None:
                    failed = max(attempts.failed, attempts.rate_limits, limiter.pauses)
                    pause = pause_before(failed, error.retry_after, self._random)
                told = error is not None and error.passed is not None and not again  # the client retries by itself
                if (holds := self.recorded or not told) and (before := limiter.learn(error, pause)) is not None:
                    self.on_slowed(lm.identity, before, limiter.size)
                if error is None or not (again or told or error.kind == "auth"):
                    # Hold the slot until the outcome is committed, so that a kill loses at most one answer per slot.
                    if response is not None and error is None:
                        error = self.cut_prompts.check(lm.identity, request, response)
                    queued = max(0.0, time.monotonic() - begun - requested)
                    return await self._settle(
                        key, attempt, role, lm, request, estimate, response, error, requested, queued
                    )
            self._failed[key] += 1
            self.count(role, Spend(1))
            if error.kind == "auth" and holds:
                self._refused[lm.identity] = error
            if not again:  # not journalled: the user can correct the key
                self._check_alive(lm, key, error if holds else None)
                raise error
            self.retries += 1
            if limiter.pauses >= MAX_PAUSES and self.stopping is None:
                self.stopping = ServerDead(f"no answer in {MAX_PAUSES} pauses in a row, the last for: {error}")
            await asyncio.sleep(0 if self.stopping else pause)

    def _prompt_tokens(self, lm: LM, estimate: int) -> int:
        """Return an estimate, scaled up if estimates were too low for earlier prompts of this model."""
        return max(1, math.ceil(estimate * self.longer_prompts.get(lm.identity, 1.0)))

    async def _reserve(self, lm: LM, request: Request, estimate: int, limiter: AdaptiveLimiter) -> Spend:
        """Reserve the worst case of one attempt. May wait for calls in flight."""

        def worst() -> Spend:
            prompt, most = self._prompt_tokens(lm, estimate), request.max_tokens
            return Spend(1, 0, prompt, most, price_of(lm, prompt, most, self.budget.usd, request=request))

        self._check_accepted(lm.identity)
        held = await self.ceilings.reserve(worst)
        try:
            # Meanwhile the server may have asked for a pause or rejected the key, and the run may end during the pause.
            if await limiter.outlast_pause():
                self.ceilings.check(Spend())
            self._check_accepted(lm.identity)
        except BaseException:
            self.ceilings.give_back(held)
            raise
        return held

    def _check_accepted(self, identity: str) -> None:
        if (rejected := self._refused.get(identity)) is not None:
            raise rejected

    async def _attempt(
        self, lm: LM, request: Request, role: str, spec: LMSpec, key: str, attempt: int, held: Spend
    ) -> tuple[Response | None, LMError | None]:
        """Record and send once. The reservation ends with the attempt's outcome."""
        done = self._keys.send(lm.identity)
        try:
            await self._record_sending(key, role, attempt, held)
            self.ceilings.count_as_sent(held)
            try:
                async with asyncio.timeout(spec.timeout + getattr(lm, "patience", 0.0)):
                    response = await lm.complete(request)
                check_length(response, request)
                self._keys.accept(lm.identity)
                return response, None
            except TimeoutError:
                error = LMError("timeout", f"no full answer within {spec.timeout:g} s")
            except LMError as failure:
                error = failure
            except Exception as failure:  # a provider's bug is one failed call, not the end of the run
                error = LMError("provider", f"{type(failure).__name__}: {failure}")
            except asyncio.CancelledError:  # the outcome stays unknown
                self._count_as_billed(held)
                raise
            try:
                if error.kind == "auth" and (error.status == 403 or split_page(str(error))[1]):
                    # The key was accepted before, so something in between refused this request.
                    error.kind = FailureKind.BLOCKED if await self._keys.is_accepted(lm.identity, done) else error.kind
                if error.kind == "no_server" and not await self._keys.is_accepted(lm.identity, done):
                    self.stopping = self.stopping or ServerDead(str(error))  # not one that dropped out: none was there
            finally:
                billed = held if error.kind.maybe_billed else Spend()
                self._count_as_billed(billed)
                self.journal.fail_attempt(key, attempt, error.kind, str(error)[:500], billed.tokens, billed.usd)
            return None, error
        finally:
            self._keys.end(lm.identity, done)
            self.ceilings.give_back(held)

    async def _record_sending(self, key: str, role: str, attempt: int, held: Spend) -> None:
        """Commit that a request is about to be sent. After a kill, its outcome is unknown."""
        try:
            await asyncio.shield(self.journal.add_attempt(key, role, attempt, held.tokens, held.usd))
        except asyncio.CancelledError:  # it will not be sent
            self.journal.delete_attempt(key, attempt)
            raise

    def _count_as_billed(self, held: Spend) -> None:
        """Count the worst-case cost of an attempt without an answer."""
        self.sent.prompt_tokens += held.tokens
        self.sent.usd += held.usd

    async def _settle(
        self,
        key: str,
        attempt: int,
        role: str,
        lm: LM,
        request: Request,
        estimate: int,
        response: Response | None,
        error: LMError | None,
        seconds: float,
        queued: float,
    ) -> Settled:
        attempts = self._failed.pop(key, 0) + 1
        outcome = error.kind if error else response.finish if response else "empty"
        prompt = min(response.prompt_tokens, MAX_TOKENS) if response else 0
        completion = min(response.completion_tokens, MAX_TOKENS) if response else 0
        known = self._price(lm, response, prompt, completion)
        usd = known or 0.0
        self.journal.delete_attempt(key, attempt)  # in the same commit as the call, which counts it
        done = self.journal.add_call(
            key,
            role=role,
            lm=lm.identity,
            request=request,
            response=response,
            outcome=outcome,
            message=str(error)[:500] if error else None,
            attempts=attempts,
            prompt_tokens=prompt,
            completion_tokens=completion,
            usd=known,
            seconds=seconds,
            queued=queued,
        )
        if response and not response.estimated and prompt > (expected := self._prompt_tokens(lm, estimate)):
            self.longer_prompts[lm.identity] = self.longer_prompts.get(lm.identity, 1.0) * prompt / expected
        self.sent.prompt_tokens += prompt
        self.sent.completion_tokens += completion
        self.sent.usd += usd
        self._recalled.touch(key)
        self.count(role, Spend(1, 0, prompt, completion, usd, seconds))
        await asyncio.shield(done)  # raises the store's error
        self._check_alive(lm, key, error)
        if self.on_call is not None:
            cost = (attempts, prompt, completion, usd, seconds, queued)
            in_flight = self.ceilings.in_flight + 1
            self.on_call(CallInfo(key, role, lm.identity, outcome, False, *cost, in_flight=in_flight))
        return Settled(response, error, False, attempts, usd, seconds, queued, key)

    def _check_alive(self, lm: LM, key: str, error: LMError | None) -> None:
        """Raise ServerDead if this call's outcome completes a streak that ends the run."""
        if (dead := self._failures.add(lm.identity, key, error, self.stopping)) is not None:
            self.stopping = dead
            raise dead

    def _price(self, lm: LM, response: Response | None, prompt: int, completion: int) -> float | None:
        """Return the US dollars of a settled call: from its provider, else from its tokens; None if unknown. In that
        case a ceiling on dollars cannot be kept, and nothing more is sent."""
        if response is None:
            return 0.0
        usd = response.usd
        if usd is None or not 0 <= usd < math.inf:  # a provider may return any value
            usd = None if hasattr(lm, "max_usd") else lm.price(prompt, completion)
        self.prices.add(lm.identity, usd, response)
        if usd is None and self.budget.usd is not None and self.stopping is None:
            self.stopping = unknown_price(lm, "budget.usd")
        return usd

    def count(self, role: str, part: Spend) -> None:
        """Add to the resources that this run has used and paid for."""
        for spend in (self.spent, self.paid, self.by_role[role]):
            spend.add(part)
        self.largest_prompt[role] = max(part.prompt_tokens, self.largest_prompt.get(role, 0))

    def revive(self) -> None:
        """Resume sending after `ServerDead` or a rejected key. For long-lived callers; runs never use it."""
        self.stopping = None
        self._failures.clear()
        self._refused.clear()

    async def effect(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run an effect other than an LM call (a tool, sandboxed code) once, and journal its JSON result.

        kind and content (name, arguments, example, ordinal) identify it. An exception is not journalled.
        """
        key = hashlib.sha256(dumps([kind, content]).encode()).hexdigest()[:32]
        if (known := self.journal.find_effect(key) or self._earlier.find_effect(key)) is not None:
            return json.loads(known)
        if self.stopping is not None:
            raise self.stopping
        begun = time.monotonic()
        text = dumps(await run())
        await self.journal.add_effect(key, kind, dumps(content), text, time.monotonic() - begun)
        return json.loads(text)  # what a replay would return, byte for byte

    def warnings(self) -> list[str]:
        """Return warnings about cut prompts and about prices."""
        return [*self.cut_prompts.lines(), *self.prices.lines()]

    def summary(self) -> dict[str, Any]:
        """Return the `spent` of the report and of `--json`."""
        return {
            **self.paid.as_dict(),
            "cached": self.spent.cached,
            "seconds": round(self.seconds, 3),
            "reused": {k: v for k, v in self.reused.as_dict().items() if k not in ("cached", "seconds")},
            **self.bill.as_dict(),
            **self.prices.as_dict(),
            "by_role": {
                role: {**spend.as_dict(), "largest_prompt": self.largest_prompt.get(role, 0)}
                for role, spend in sorted(self.by_role.items())
            },
        }

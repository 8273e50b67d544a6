"""The ceilings of a run: the remaining budget, and calls that wait for room in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.errors import BudgetSpent
from workbench.ledger.retry import AdaptiveLimiter
from workbench.ledger.spend import Spend

if TYPE_CHECKING:
    from workbench.ledger.ledger import Ledger


class Ceilings:
    """Reserves the worst case of each call before it is sent, so that no order of events passes a ceiling.

    A reservation is not spent, since calls rarely take their worst case. So a call that fits the rest of the budget,
    but not together with the calls in flight, waits until enough of these are settled. Calls are served in order of
    arrival, so cheap calls do not starve an expensive one. Only a call that does not fit the rest of the budget is
    refused.

    No call waits forever: it waits for calls in flight, which have slots of their own and depend on no other call, and
    each of them ends with `give_back`, whether answered, failed, timed out or cancelled.
    """

    def __init__(self, ledger: Ledger):
        self._ledger = ledger
        self._held_for_proof = {"calls": 0.0, "tokens": 0.0, "usd": 0.0, "minutes": 0.0}
        self.reserved, self.in_flight = Spend(), 0
        # Commands run several loops on one ledger, so use nothing of asyncio that binds to its first loop.
        self._turn = AdaptiveLimiter(1)
        self._freed: asyncio.Future[None] | None = None

    def reserve_for_proof(self, *, calls: float, tokens: float, usd: float, minutes: float) -> None:
        self._held_for_proof = {"calls": calls, "tokens": tokens, "usd": usd, "minutes": minutes}

    def remaining(self, what: str) -> float:
        """Return what search may still spend; infinite without a ceiling. Calls in flight do not count, so that a
        replay, which has none, gets the same figure."""
        if (ceiling := getattr(self._ledger.budget, what)) is None:
            return float("inf")
        used = self._ledger.seconds / 60 if what == "minutes" else getattr(self._ledger.spent, what)
        return max(0.0, ceiling - used - self._held_for_proof[what])

    async def reserve(self, worst: Callable[[], Spend]) -> Spend:
        """Reserve the worst case of a call. May wait for calls in flight.

        worst: called again after each wait, since answers may show that prompts are longer than estimated.

        Returns the argument of `give_back`. Raises BudgetSpent, or the error that stops the run.
        """
        async with self._turn:
            while self._refusal(most := worst(), beside=self.reserved) is not None:
                self.check(most)
                self._freed = asyncio.get_running_loop().create_future()
                await self._freed
            self.reserved.add(most)
            self.in_flight += 1
        return most

    def count_as_sent(self, held: Spend) -> None:
        """Count a reserved call as sent from here on, answered or not."""
        self._ledger.sent.calls += held.calls
        self.reserved.calls -= held.calls
        held.calls = 0

    def give_back(self, held: Spend) -> None:
        """End a reservation. The caller must add the actual cost to `sent` before it awaits anything else."""
        self.in_flight -= 1
        self.reserved.calls -= held.calls
        self.reserved.prompt_tokens -= held.prompt_tokens
        self.reserved.completion_tokens -= held.completion_tokens
        self.reserved.usd -= held.usd
        if not self.in_flight:
            self.reserved = Spend()  # no rounding error left, for which a call would wait forever
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)

    def check(self, more: Spend) -> None:
        """Raise BudgetSpent if this much more does not fit the rest of the budget; or the error that stops the run."""
        if (refusal := self._refusal(more)) is not None:
            raise refusal

    def _refusal(self, more: Spend, beside: Spend | None = None) -> BaseException | None:
        account = self._ledger
        if account.stopping is not None:
            return account.stopping
        for what, needed in self._needed(more, beside).items():
            ceiling = getattr(account.budget, what)
            held = self._held_for_proof[what]
            if needed > ceiling - held + 1e-12:
                return BudgetSpent(what, ceiling, needed, held)
        minutes, held = account.budget.minutes, self._held_for_proof["minutes"]
        if minutes is not None and account.seconds >= (minutes - held) * 60:
            return BudgetSpent("minutes", minutes, account.seconds / 60, held)
        return None

    def _needed(self, more: Spend, beside: Spend | None = None) -> dict[str, float]:
        """Return the totals of this run plus `more`, for each resource with a ceiling."""
        account = self._ledger
        found: dict[str, float] = {}
        for what in ("calls", "tokens", "usd"):
            if getattr(account.budget, what) is not None:
                used = max(getattr(account.spent, what), getattr(account.sent, what))
                found[what] = used + getattr(more, what) + (0 if beside is None else getattr(beside, what))
        return found

"""The ceilings of a run: what is left below them, and the calls that wait for room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.errors import BudgetSpent
from workbench.ledger.rate_limit import AdaptiveLimiter
from workbench.ledger.spend import Spend

if TYPE_CHECKING:
    from workbench.ledger.ledger import Ledger


class Ceilings:
    """Reserves the worst case of each call before it is sent, so that no interleaving passes a ceiling.

    A reservation is not spent: calls rarely take their worst case. So a call that fits beside what is spent, but not
    beside the calls in flight, waits until enough of these are settled. Who came first is served first, so cheap calls
    do not starve an expensive one. Only a call that does not fit beside what is spent is refused.

    Nobody waits for ever: who waits does so for calls in flight, which hold slots of their own and need nothing of
    others, and each of them ends with `give_back`, answered, failed, timed out or cancelled.
    """

    def __init__(self, ledger: Ledger):
        self._ledger = ledger
        self._held_for_proof = {"calls": 0.0, "tokens": 0.0, "usd": 0.0, "minutes": 0.0}
        self.reserved, self.in_flight = Spend(), 0
        # Commands run several loops on one ledger, so nothing of asyncio that stays with its first loop.
        self._turn = AdaptiveLimiter(1)
        self._freed: asyncio.Future[None] | None = None

    def reserve_for_proof(self, *, calls: float, tokens: float, usd: float, minutes: float) -> None:
        self._held_for_proof = {"calls": calls, "tokens": tokens, "usd": usd, "minutes": minutes}

    def remaining(self, what: str) -> float:
        """Return what search may still use, beside what is spent; infinite where there is no ceiling. Calls in flight
        do not count, so that a replay, which has none, gets the same figure."""
        if (ceiling := getattr(self._ledger.budget, what)) is None:
            return float("inf")
        used = self._ledger.seconds / 60 if what == "minutes" else getattr(self._ledger.spent, what)
        return max(0.0, ceiling - used - self._held_for_proof[what])

    async def reserve(self, worst: Callable[[], Spend]) -> Spend:
        """Reserve the worst case of a call, for which calls in flight may have to be waited for.

        worst: asked again after each wait, since answers may show that prompts are longer than estimated.

        Returns what `give_back` takes. Raises BudgetSpent, or what stops the run.
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
        """From here on a reserved call counts among those sent, answered or not."""
        self._ledger.sent.calls += held.calls
        self.reserved.calls -= held.calls
        held.calls = 0

    def give_back(self, held: Spend) -> None:
        """End a reservation. What the call really took is to be added to `sent` before anything else is awaited."""
        self.in_flight -= 1
        self.reserved.calls -= held.calls
        self.reserved.prompt_tokens -= held.prompt_tokens
        self.reserved.completion_tokens -= held.completion_tokens
        self.reserved.usd -= held.usd
        if not self.in_flight:
            self.reserved = Spend()  # no rest of rounding, for which a call would wait without end
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)

    def check(self, more: Spend) -> None:
        """Raise BudgetSpent if so much more does not fit beside what is spent; or what stops the run."""
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
        """Total what this run comes to with so much more, by what has a ceiling."""
        account = self._ledger
        found: dict[str, float] = {}
        for what in ("calls", "tokens", "usd"):
            if getattr(account.budget, what) is not None:
                used = max(getattr(account.spent, what), getattr(account.sent, what))
                found[what] = used + getattr(more, what) + (0 if beside is None else getattr(beside, what))
        return found

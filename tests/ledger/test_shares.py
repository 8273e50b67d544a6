"""A budget that several runs share: no call is sent that the share of its run does not cover."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.journal import FakeLM, ask, journal, nothing_reserved, reply, run, spec

from workbench.errors import BudgetSpent


class Pool:
    """A budget of calls of which others hold a part."""

    def __init__(self, budget: float, others: float):
        self.budget, self.others, self.mark, self.held = budget, others, 0.0, 0.0
        self.draws = 0

    def limit(self, what: str) -> float:
        return self.mark

    def available(self, what: str) -> float:
        return self.budget - self.others - self.held

    def hold(self, held: Mapping[str, float]) -> None:
        self.held = held["calls"]

    async def draw(self, needed: Mapping[str, float]) -> bool:
        self.draws += 1
        await asyncio.sleep(0)
        if needed["calls"] > self.available("calls"):
            return False
        self.mark = max(self.mark, min(needed["calls"] + 1, self.available("calls")))  # one more than is asked for
        return True


def gather_calls(path: Path, pool: Pool, n: int, reserve: int = 0) -> tuple[list[Any], FakeLM]:
    """The outcomes of n calls at once under a budget of 10 calls, and the model that answered."""

    def answer(request: Any) -> Any:
        assert len(lm.requests) <= pool.mark, "a call is counted before it is sent"
        return reply()

    lm = FakeLM(answer)
    with journal(path, calls=10) as ledger:
        ledger.ceilings.shares = pool
        ledger.reserve_for_proof(calls=reserve)

        async def course() -> list[Any]:
            calls = (ledger.call(lm, ask(str(i)), "task", spec()) for i in range(n))
            return await asyncio.gather(*calls, return_exceptions=True)

        outcomes = run(course)
        assert nothing_reserved(ledger) and ledger.remaining("calls") == 0
    return outcomes, lm


def test_a_call_is_covered_by_the_share_before_it_is_sent(tmp_path: Path) -> None:
    pool = Pool(budget=10, others=3)
    outcomes, lm = gather_calls(tmp_path / "run.db", pool, 9)
    refused = [one for one in outcomes if isinstance(one, BudgetSpent)]
    assert len(lm.requests) == 7 == 9 - len(refused) and pool.draws < 9
    assert "budget reached: 10 calls; one more call could bring the total to 11" in str(refused[0])


def test_the_reserve_for_the_proof_is_held_back_once_for_all(tmp_path: Path) -> None:
    pool = Pool(budget=10, others=0)
    outcomes, lm = gather_calls(tmp_path / "run.db", pool, 6, reserve=6)
    assert pool.held == 6 and len(lm.requests) == 4
    assert "of which 6 are reserved for the proof" in str(outcomes[-1])

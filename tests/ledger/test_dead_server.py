"""A server that is gone: the run stops after a bounded number of requests, and asks again when it is resumed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.journal import (
    FakeLM,
    ask,
    failure,
    journal,
    nothing_reserved,
    reply,
    run,
    run_without_waiting,
    spec,
    turns,
)

from workbench.errors import FailureKind, ServerDead
from workbench.ledger import Ledger
from workbench.ledger.retry import DEAD_AFTER
from workbench.lm import Request


@pytest.mark.fault("server-errors")
@pytest.mark.parametrize(
    ("attempts", "kind"),
    [
        (1, "connection"),
        (3, "connection"),
        *((1, str(kind)) for kind in FailureKind if kind.dead_server and kind not in ("connection", "no_server")),
    ],
)
def test_a_dead_server_stops_the_run_after_a_bounded_number_of_requests(
    attempts: int, kind: str, tmp_path: Path
) -> None:
    alive, places = False, asyncio.Semaphore(1)
    pause = None if kind == "rate_limit" else 0.0  # one rate limit a second counts

    async def answer(request: Request) -> Any:
        await turns(random.Random(str(request.messages)).randrange(4))
        return reply() if alive else failure(kind)

    lm = FakeLM(answer, concurrency=8)

    at_once = 16  # examples under way, as an evaluation has them

    async def one(ledger: Ledger, n: int) -> Any:
        async with places:
            return await ledger.call(lm, ask(str(n)), "task", spec(attempts=attempts))

    async def main() -> None:
        nonlocal alive, places
        places = asyncio.Semaphore(at_once)
        with journal(tmp_path / "run.db", pause=pause, calls=5000) as ledger:
            outcomes = await asyncio.gather(*(one(ledger, n) for n in range(200)), return_exceptions=True)
            dead = [o for o in outcomes if isinstance(o, ServerDead)]
            assert len(outcomes) - len(dead) == DEAD_AFTER - 1, "those before the end were told their own failure"
            assert len(lm.requests) <= (DEAD_AFTER + at_once) * attempts
            assert f"planted {kind}" in str(dead[0]) and nothing_reserved(ledger)
            ledger.store.flush()
            assert ledger.store.row("select 1 from calls") is None, "what failed meanwhile is no lasting outcome"
            sent = len(lm.requests)
            with pytest.raises(ServerDead):
                await one(ledger, 999)
            assert len(lm.requests) == sent
        alive = True
        with journal(tmp_path / "run.db", pause=pause, calls=5000) as ledger:
            for n in range(200):
                settled = await one(ledger, n)
                assert settled.response is not None, "a resumed run asks again"
            assert ledger.spent.calls == ledger.sent.calls == len(lm.requests)

    (run_without_waiting if kind == "rate_limit" else run)(main)


@pytest.mark.fault("server-errors")
@pytest.mark.parametrize("recorded", [True, False])
def test_a_server_that_never_was_there_stops_the_run_at_its_first_call(recorded: bool, tmp_path: Path) -> None:
    """Nothing is tried again, and no outcome is stored: a resumed run asks."""

    async def main() -> None:
        lm = FakeLM(lambda request: failure("no_server"))
        with journal(tmp_path / "run.db", calls=500, recorded=recorded) as ledger:
            with pytest.raises(ServerDead, match="planted no_server"):
                await ledger.call(lm, ask("1"), "task", spec(attempts=4))
            assert len(lm.requests) == 1 and nothing_reserved(ledger)
            ledger.store.flush()
            assert ledger.store.row("select 1 from calls where kind = 'lm'") is None

    run(main)


def test_a_server_that_answered_before_and_refuses_now_has_dropped_out(tmp_path: Path) -> None:
    """It may be restarting, so each call has its attempts, also in a later run of the same database."""
    alive = True

    def answer(request: Request) -> Any:
        return reply() if alive else failure("no_server")

    async def main() -> None:
        nonlocal alive
        lm = FakeLM(answer)
        with journal(tmp_path / "run.db", calls=500) as ledger:
            await ledger.call(lm, ask("1"), "task", spec(attempts=1))
        alive = False
        with journal(tmp_path / "run.db", calls=500) as ledger:
            found = await ledger.call(lm, ask("2"), "task", spec(attempts=2))
            assert found.error is not None and found.attempts == 2 and ledger.stopping is None

    run(main)


def test_a_dead_judge_beside_a_model_that_lives_stops_the_run(tmp_path: Path) -> None:
    """The rows of the task would be paid for, and none could be scored."""

    async def main() -> None:
        lives, dead = FakeLM(), FakeLM(lambda request: failure("connection"))
        dead.identity = "judge"
        with journal(tmp_path / "run.db", calls=5000) as ledger:
            with pytest.raises(ServerDead, match=f"{DEAD_AFTER} calls in a row failed"):
                for n in range(200):
                    await ledger.call(lives, ask(f"task {n}"), "task", spec(attempts=1))
                    await ledger.call(dead, ask(f"judge {n}"), "judge", spec(attempts=1))
            assert len(lives.requests) == len(dead.requests) == DEAD_AFTER

    run(main)


@pytest.mark.parametrize("answered", [False, True])
def test_where_nothing_was_answered_before_the_budget_ended_all_is_asked_again(answered: bool, tmp_path: Path) -> None:
    """Failures that end a call are kept, since asking again would give the same; but not those of a server that gave
    no answer at all. What was sent stays on the bill."""
    alive = answered

    def answer(request: Request) -> Any:
        return reply() if alive else failure("timeout")

    async def main() -> None:
        nonlocal alive
        lm = FakeLM(answer)
        with journal(tmp_path / "run.db", calls=3) as ledger:
            for n in range(3):
                await ledger.call(lm, ask(str(n)), "task", spec(attempts=1))
                alive = False
            if answered:
                ledger.bill.check_answered()
            else:
                with pytest.raises(ServerDead, match="none of 3 requests was answered"):
                    ledger.bill.check_answered()
        alive = True
        with journal(tmp_path / "run.db", calls=6) as ledger:
            found = [await ledger.call(lm, ask(str(n)), "task", spec(attempts=1)) for n in range(3)]
            assert [settled.error is None for settled in found] == ([True, False, False] if answered else [True] * 3)
            assert len(lm.requests) == ledger.sent.calls == (3 if answered else 6)

    run(main)


def test_an_answer_in_between_keeps_the_run_alive(tmp_path: Path) -> None:
    async def main() -> None:
        with journal(tmp_path / "run.db", calls=500) as ledger:
            for n in range(4 * DEAD_AFTER):
                lm = FakeLM(lambda request, n=n: failure("server") if n % DEAD_AFTER else reply())
                await ledger.call(lm, ask(str(n)), "task", spec(attempts=1))
            for n in range(2 * DEAD_AFTER):  # errors of the request say nothing about the server
                await ledger.call(FakeLM(lambda r: failure("bad_request")), ask(f"bad {n}"), "task", spec(attempts=1))
            row = ledger.store.row("select count(*) from calls")
            assert row is not None and row[0] == 6 * DEAD_AFTER

    run(main)

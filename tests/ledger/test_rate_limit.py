"""Requests in flight: never more than configured, fewer after a rate limit, one pause for all, no slot is lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.journal import FakeLM, ask, failure, journal, reply, run, run_without_waiting, scripted, spec, turns

from workbench.errors import LMError, ServerDead
from workbench.ledger.retry import MAX_PAUSES, MAX_RATE_LIMITS, AdaptiveLimiter

RATE = LMError("rate_limit", "slow down")


def at(moment: float) -> None:
    """Set the clock of the running loop (for tests that do not sleep)."""
    asyncio.get_running_loop().time = lambda: moment  # type: ignore[method-assign]


def test_the_size_is_halved_at_most_once_a_second_and_never_to_nothing() -> None:
    async def main() -> list[int]:
        limiter, sizes = AdaptiveLimiter(20), []
        for moment in (0.0, 0.1, 0.9, 1.2, 2.0, 2.3, 3.4, 4.5, 5.6, 6.7):
            at(moment)
            limiter.learn(RATE, 0.0)
            sizes.append(limiter.size)
        return sizes

    assert asyncio.run(main()) == [10, 10, 10, 5, 5, 2, 1, 1, 1, 1]


def test_it_grows_by_one_for_each_full_round_up_to_what_is_configured() -> None:
    async def main() -> list[int]:
        limiter, sizes = AdaptiveLimiter(6), []
        at(0.0)
        limiter.learn(RATE, 0.0)
        for _ in range(20):
            limiter.learn(None, 0.0)
            sizes.append(limiter.size)
        return sizes

    assert asyncio.run(main()) == [3, 3, *[4] * 4, *[5] * 5, *[6] * 9]


@pytest.mark.parametrize("kind", ["server", "timeout", "bad_request", "rate_limit"])
def test_failures_never_let_it_grow(kind: str) -> None:
    async def main() -> int:
        limiter = AdaptiveLimiter(8)
        at(0.0)
        limiter.learn(RATE, 0.0)
        for _ in range(50):
            limiter.learn(LMError(kind, ""), 0.0)
        return limiter.size

    assert asyncio.run(main()) == 4


@settings(max_examples=80)
@given(
    size=st.integers(1, 5),
    jobs=st.lists(
        st.tuples(
            st.integers(0, 6),  # turns before it asks for a slot
            st.integers(0, 4),  # turns that it keeps it
            st.one_of(st.none(), st.integers(0, 14)),  # the turn in which it is cancelled
            st.sampled_from([None, None, RATE, LMError("server", "")]),
        ),
        max_size=25,
    ),
)
def test_no_interleaving_takes_too_many_slots_or_loses_one(size: int, jobs: list[Any]) -> None:
    limiter, served = AdaptiveLimiter(size), []
    inside = most = 0

    async def job(n: int, before: int, keep: int, outcome: LMError | None) -> None:
        nonlocal inside, most
        await turns(before)
        async with limiter:
            inside += 1
            most = max(most, inside)
            assert inside <= limiter.busy <= limiter.largest
            try:
                await turns(keep)
                limiter.learn(outcome, 0.0)
            finally:
                inside -= 1
        served.append(n)

    async def main() -> None:
        tasks = [asyncio.create_task(job(n, b, k, o)) for n, (b, k, _, o) in enumerate(jobs)]
        for turn in range(15):
            await turns(1)
            for task, (_, _, cancel, _) in zip(tasks, jobs, strict=True):
                if cancel == turn:
                    task.cancel()
        for n, outcome in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
            assert outcome is None or (isinstance(outcome, asyncio.CancelledError) and jobs[n][2] is not None), outcome
        assert limiter.busy == 0 and not limiter._waiting, "a slot was lost"
        assert 1 <= limiter.size <= size
        async with limiter:
            pass

    run(main)
    assert most <= size and {n for n, j in enumerate(jobs) if j[2] is None} <= set(served)


def test_first_come_first_served() -> None:
    order: list[int] = []
    limiter = AdaptiveLimiter(2)

    async def job(n: int) -> None:
        async with limiter:
            order.append(n)
            await turns(3)

    async def main() -> None:
        await asyncio.gather(*(job(n) for n in range(9)))

    run(main)
    assert order == list(range(9))


def test_a_waiter_that_is_cancelled_as_its_turn_comes_passes_it_on() -> None:
    async def main() -> None:
        limiter = AdaptiveLimiter(1)
        await limiter.__aenter__()

        async def wait() -> str:
            async with limiter:
                return "served"

        for release_first in (True, False):
            first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
            await turns(2)
            if release_first:
                await limiter.__aexit__()
                first.cancel()
            else:
                first.cancel()
                await limiter.__aexit__()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert await second == "served" and limiter.busy == 0
            await limiter.__aenter__()

    run(main)


def test_all_wait_for_one_pause_also_those_who_come_later() -> None:
    async def main() -> list[float]:
        limiter, begun = AdaptiveLimiter(8), time.monotonic()
        starts: list[float] = []

        async def job(delay: float) -> None:
            await asyncio.sleep(delay)
            async with limiter:
                starts.append(time.monotonic() - begun)

        limiter.learn(RATE, 0.2)
        limiter.learn(RATE, 0.05)  # a shorter one does not cut it short
        await asyncio.gather(*(job(d) for d in (0.0, 0.0, 0.1, 0.25)))
        return starts

    starts = run(main)
    assert min(starts) >= 0.199 and len(starts) == 4


def test_cancelling_in_a_pause_gives_the_slot_back() -> None:
    async def main() -> None:
        limiter = AdaptiveLimiter(1)
        limiter.learn(RATE, 3600.0)

        async def job() -> None:
            async with limiter:
                pass

        tasks = [asyncio.create_task(job()) for _ in range(3)]
        await turns(3)
        for task in tasks:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert limiter.busy == 0 and not limiter._waiting

    run(main)


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_server_that_asks_to_wait_is_left_alone_by_every_call(attempts: int, tmp_path: Path) -> None:
    """Through the ledger. With one attempt there is no retry, but the others are slowed down all the same."""
    told: list[float] = []
    seen: list[float] = []

    async def answer(request: Any) -> Any:
        seen.append(time.monotonic())
        await asyncio.sleep(0.01)
        if not told:
            told.append(time.monotonic())
            return LMError("rate_limit", "slow down", retry_after=0.3)
        return reply()

    lm = FakeLM(answer, concurrency=2)

    async def main() -> None:
        with journal(tmp_path / "run.db", pause=None, calls=50) as ledger:
            await asyncio.gather(*(ledger.call(lm, ask(str(n)), "task", spec(attempts=attempts)) for n in range(8)))

    run(main)
    gap = [s - told[0] for s in seen if s > told[0]]
    assert len(seen) == 8 + (attempts > 1) and min(gap) >= 0.299, gap
    assert lm.most <= 2


def test_a_limit_holds_for_a_model_whoever_asks(tmp_path: Path) -> None:
    async def answer(request: Any) -> Any:
        await asyncio.sleep(0.002)
        return LMError("server", "down") if request.messages[0]["content"].endswith("3") else reply()

    lm = FakeLM(answer, concurrency=64)

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=500) as ledger:
            jobs = (
                ledger.call(lm, ask(str(n)), role, spec(concurrency=3, attempts=2))
                for n in range(40)
                for role in ("task", "judge")
            )
            await asyncio.gather(*jobs)
            assert lm.most == 3

    run(main)


# No call is lost to a rate limit


@pytest.mark.fault("rate-limits")
@pytest.mark.parametrize("asked", [2.0, 3600.0, 0.0, None, -5.0, float("nan")])
def test_200_calls_of_8_workers_outlast_every_rate_limit(asked: float | None, tmp_path: Path) -> None:
    """After each 40 answers the server refuses for 5 minutes: longer than four attempts would last."""
    closed_until, answered, pauses = 0.0, 0, []

    async def answer(request: Any) -> Any:
        nonlocal closed_until, answered
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        if now < closed_until:
            return failure("rate_limit", retry_after=asked)
        answered += 1
        if answered % 40 == 0:
            closed_until = now + 300
            pauses.append(len(lm.requests))
        return reply()

    lm = FakeLM(answer, concurrency=8)

    async def main() -> None:
        with journal(tmp_path / "run.db", pause=None, calls=5000) as ledger:
            jobs = (ledger.call(lm, ask(str(n)), "task", spec(attempts=4)) for n in range(200))
            settled = await asyncio.gather(*jobs)
            assert [s.error for s in settled] == [None] * 200
            assert ledger.sent.calls == ledger.spent.calls == len(lm.requests)
            assert lm.most <= 8

    run_without_waiting(main)
    assert len(pauses) == 5 and len(lm.requests) < 200 + 4 * 40, "all workers wait together"


@pytest.mark.fault("rate-limits")
def test_a_server_that_only_refuses_pauses_the_run_and_a_resumed_one_asks_again(tmp_path: Path) -> None:
    async def no(request: Any) -> Any:
        await asyncio.sleep(0.01)
        return failure("rate_limit", retry_after=3600)

    lm = FakeLM(no, concurrency=8)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with journal(tmp_path / "run.db", pause=None, calls=5000) as ledger:
            begun = loop.time()
            jobs = (ledger.call(lm, ask(str(n)), "task", spec(attempts=4)) for n in range(40))
            outcomes = await asyncio.gather(*jobs, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {ServerDead}
            assert f"no answer in {MAX_PAUSES} pauses" in str(outcomes[0]) and "planted rate_limit" in str(outcomes[0])
            assert 120 * (MAX_PAUSES - 1) <= loop.time() - begun <= 160 * MAX_PAUSES, "two minutes at most each time"
            assert len(lm.requests) < 40
        lm.answer = lambda request: reply()
        with journal(tmp_path / "run.db", pause=None, calls=5000) as ledger:
            settled = [await ledger.call(lm, ask(str(n)), "task", spec(attempts=4)) for n in range(40)]
            assert [s.error for s in settled] == [None] * 40
            assert ledger.sent.calls == ledger.spent.calls == len(lm.requests)

    run_without_waiting(main)


def test_one_call_that_alone_is_refused_ends_and_the_others_go_on(tmp_path: Path) -> None:
    lm = FakeLM(lambda request: failure("rate_limit") if "never" in str(request) else reply(), concurrency=4)

    async def main() -> None:
        with journal(tmp_path / "run.db", pause=None, calls=500) as ledger:
            refused = asyncio.create_task(ledger.call(lm, ask("never"), "task", spec(attempts=4)))
            for n in range(200):
                assert (await ledger.call(lm, ask(str(n)), "task", spec())).error is None
                await asyncio.sleep(20)
            settled = await refused
            assert settled.error is not None and settled.error.kind == "rate_limit"
            assert settled.attempts == MAX_RATE_LIMITS

    run_without_waiting(main)


def test_a_rate_limit_uses_up_no_attempt(tmp_path: Path) -> None:
    lm = scripted(*[RATE] * 9, *[failure("server")] * 3, RATE, reply())

    async def main() -> None:
        with journal(tmp_path / "run.db", pause=None, calls=99) as ledger:
            settled = await ledger.call(lm, ask(), "task", spec(attempts=4))
            assert settled.response == reply() and settled.attempts == ledger.sent.calls == 14

    run_without_waiting(main)


class SentFrom(FakeLM):
    """A model whose requests are sent from a worker."""

    def __init__(self, place: str, answer: Any):
        super().__init__(answer)
        self.place = place


@pytest.mark.fault("rate-limits")
def test_a_rate_limit_that_one_worker_meets_is_waited_for_by_all(tmp_path: Path) -> None:
    sent: list[tuple[str, float]] = []

    def from_place(place: str) -> SentFrom:
        def answer(request: Any) -> Any:
            sent.append((place, asyncio.get_running_loop().time()))
            return RATE if len(sent) == 1 else reply()

        return SentFrom(place, answer)

    async def main() -> None:
        with journal(tmp_path / "run.db", pause=60.0, calls=10) as ledger:
            first = asyncio.create_task(ledger.call(from_place("a"), ask("1"), "task", spec()))
            while not sent:
                await asyncio.sleep(0)
            await turns(5)
            await asyncio.gather(first, ledger.call(from_place("b"), ask("2"), "task", spec()))

    run_without_waiting(main)
    refused, *later = sent
    assert refused[0] == "a" and sorted(place for place, _ in later) == ["a", "b"]
    assert all(when - refused[1] >= 60 for _, when in later)

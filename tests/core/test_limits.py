"""The limiter: never more at once than allowed, one pause for all, half after a rate limit, up again after success."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import LMError
from workbench.limits import Limiter

RATE = LMError("rate_limit", "slow down")


@given(size=st.integers(1, 6), jobs=st.integers(1, 40), seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_never_more_at_once_than_its_size_whatever_is_cancelled(size: int, jobs: int, seed: int) -> None:
    rng = random.Random(seed)

    async def course() -> None:
        limiter, inside, most = Limiter(size), 0, 0

        async def job() -> None:
            nonlocal inside, most
            async with limiter:
                inside += 1
                most = max(most, inside)
                try:
                    await asyncio.sleep(rng.choice([0, 0.0005]))
                finally:
                    inside -= 1

        tasks = [asyncio.create_task(job()) for _ in range(jobs)]
        for task in tasks:
            if rng.random() < 0.3:
                await asyncio.sleep(0)
                task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert most <= size and limiter.busy == 0 and not limiter._waiting

    asyncio.run(course())


def test_a_rate_limit_halves_it_once_a_burst_and_success_brings_it_back() -> None:
    async def course() -> None:
        limiter = Limiter(8)
        for _ in range(5):  # one burst
            limiter.slow_down(RATE, 0.0)
        assert limiter.size == 4
        for _ in range(200):
            async with limiter:
                pass
        assert limiter.size == 8, "never above what was configured"

    asyncio.run(course())


def test_it_never_goes_below_one_and_other_errors_do_not_matter() -> None:
    async def course() -> None:
        limiter = Limiter(1)
        limiter.slow_down(RATE, 0.0)
        assert limiter.size == 1
        big = Limiter(8)
        big.slow_down(LMError("server", "x"), 9.0)
        big.slow_down(None, 9.0)
        await asyncio.wait_for(big.__aenter__(), 0.5)
        assert big.size == 8

    asyncio.run(course())


def test_one_who_is_told_to_wait_stops_everybody() -> None:
    async def course() -> float:
        limiter = Limiter(4)
        limiter.slow_down(RATE, 0.15)
        begun = asyncio.get_running_loop().time()

        async def job() -> None:
            async with limiter:
                pass

        await asyncio.gather(*(job() for _ in range(6)))
        return asyncio.get_running_loop().time() - begun

    assert asyncio.run(course()) >= 0.14


def test_a_cancelled_waiter_of_the_pause_gives_its_place_back() -> None:
    async def course() -> None:
        limiter = Limiter(1)
        limiter.slow_down(RATE, 30.0)
        task = asyncio.create_task(limiter.__aenter__())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert limiter.busy == 0

    asyncio.run(course())


def test_a_waiter_that_is_cancelled_at_the_moment_of_a_release_is_only_cancelled() -> None:
    async def course() -> None:
        limiter = Limiter(1)
        await limiter.__aenter__()
        waiting = [asyncio.create_task(limiter.__aenter__()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await limiter.__aexit__(None)  # before the cancelled one has run
        outcomes = await asyncio.gather(waiting[0], waiting[1], return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError) and outcomes[1] is None
        await limiter.__aexit__(None)
        await waiting[2]
        await limiter.__aexit__(None)
        assert limiter.busy == 0

    asyncio.run(course())

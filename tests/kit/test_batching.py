"""The dynamic batcher: what waits together is served together, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from workbench.lm import Request
from workbench_kit.lms.batching import Batcher, RefillingBatcher, derive_seed


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 10))


def test_batches_and_keeps_the_order():
    sizes = []

    def work(items):
        sizes.append(len(items))
        time.sleep(0.02)
        return [item * 2 for item in items]

    async def main():
        batcher = Batcher(work, max_batch=8)
        results = await asyncio.gather(*[batcher.submit(n) for n in range(20)])
        await batcher.aclose()
        assert results == [n * 2 for n in range(20)]

    run(main)
    assert max(sizes) == 8 and len(sizes) <= 4


def test_errors_reach_their_own_callers():
    def work(items):
        if "all" in items:
            raise OSError("broken")
        if "exit" in items:
            raise SystemExit(3)
        if "short" in items:
            return []
        return [ValueError(item) if item == "one" else item for item in items]

    async def main():
        batcher = Batcher(work, max_batch=4)
        calls = batcher.submit("fine"), batcher.submit("one")
        fine, bad = await asyncio.gather(*calls, return_exceptions=True)
        assert fine == "fine" and isinstance(bad, ValueError)
        with pytest.raises(OSError, match="broken"):
            await batcher.submit("all")
        with pytest.raises(RuntimeError, match="SystemExit"):
            await batcher.submit("exit")
        with pytest.raises(RuntimeError, match="1 items in a batch, but 0 results"):
            await batcher.submit("short")
        assert await batcher.submit("alive") == "alive"
        await batcher.aclose()

    run(main)


def test_a_cancelled_call_is_not_served():
    served, go = [], threading.Event()

    def work(items):
        served.extend(items)
        go.wait(5)
        return items

    async def main():
        batcher = Batcher(work, max_batch=1)
        first = asyncio.create_task(batcher.submit("first"))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(batcher.submit("waiting"))
        last = asyncio.create_task(batcher.submit("last"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        first.cancel()  # runs already: its result is dropped
        await asyncio.sleep(0.01)
        go.set()
        assert await last == "last"
        await batcher.aclose()

    run(main)
    assert served == ["first", "last"]


def test_closing_fails_what_waits_and_ends_the_thread():
    before = threading.active_count()

    async def main():
        batcher = Batcher(lambda items: (time.sleep(0.1), items)[1], max_batch=1)
        calls = [asyncio.create_task(batcher.submit(n)) for n in range(3)]
        await asyncio.sleep(0.05)
        await batcher.aclose()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert results[0] == 0
        assert all(isinstance(result, RuntimeError) for result in results[1:])
        with pytest.raises(RuntimeError, match="closed"):
            await batcher.submit(1)
        await batcher.aclose()

    run(main)
    assert threading.active_count() <= before + 1  # asyncio's own helper thread may linger


def test_seeds():
    def request(text, **values):
        return Request(({"role": "user", "content": text},), **values)

    assert derive_seed(request("a")) == derive_seed(request("a", max_tokens=9)) != derive_seed(request("a", replica=1))
    assert derive_seed(request("a")) != derive_seed(request("b \ud800"))


# Batches that items join while they run


def test_items_that_wait_join_the_running_batch():
    sizes = []

    def work(jobs, take):
        while jobs:
            sizes.append(len(jobs))
            done, jobs = jobs[0], jobs[1:]
            done.finish(done.item * 2)
            jobs += take(3 - len(jobs))

    async def main():
        batcher = RefillingBatcher(work, max_batch=3)
        results = await asyncio.gather(*[batcher.submit(n) for n in range(20)])
        await batcher.aclose()
        assert results == [n * 2 for n in range(20)]

    run(main)
    assert max(sizes) == 3 and sizes.count(3) >= 18, "the batch is full until nothing waits"


def test_what_a_batch_raises_reaches_those_it_left():
    def work(jobs, take):
        for job in [*jobs, *take(9)]:
            if job.item == "all":
                raise OSError("broken")
            job.finish(ValueError(job.item) if job.item == "one" else job.item)
            job.finish("too late")
            if job.item == "rest":
                return

    async def main():
        batcher = RefillingBatcher(work, max_batch=2)
        calls = [batcher.submit(item) for item in ("fine", "one", "rest", "left")]
        fine, bad, rest, left = await asyncio.gather(*calls, return_exceptions=True)
        assert (fine, rest) == ("fine", "rest") and isinstance(bad, ValueError)
        assert isinstance(left, RuntimeError) and "left out" in str(left)
        with pytest.raises(OSError, match="broken"):
            await batcher.submit("all")
        assert await batcher.submit("alive") == "alive"
        await batcher.aclose()

    run(main)


def test_closing_ends_the_running_batch_and_refuses_what_waits():
    begun, closed = threading.Event(), threading.Event()

    def work(jobs, take):
        begun.set()
        assert closed.wait(5)
        assert take(5) == []
        for job in jobs:
            job.finish("done")

    async def main():
        batcher = RefillingBatcher(work, max_batch=1)
        running = asyncio.create_task(batcher.submit("running"))
        assert await asyncio.to_thread(begun.wait, 5)
        waiting = asyncio.create_task(batcher.submit("waiting"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(batcher.aclose())
        await asyncio.sleep(0)
        closed.set()
        await closing
        assert await running == "done"
        with pytest.raises(RuntimeError, match="closed"):
            await waiting

    run(main)


def test_calls_that_are_ready_at_once_share_a_batch_however_slowly_each_is_made() -> None:
    """As on a loaded machine, where the loop gets to the next call after the batch could have begun."""
    sizes: list[int] = []

    def work(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    async def main() -> None:
        batcher = Batcher[int, int](work, max_batch=64)

        async def call(number: int) -> None:
            time.sleep(0.01)
            await batcher.submit(number)

        for _ in range(3):
            await asyncio.gather(*(call(number) for number in range(5)))
        await batcher.aclose()

    asyncio.run(main())
    assert sizes == [5, 5, 5]

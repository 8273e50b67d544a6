"""The seconds of a call are those of its requests; waiting in our own queue is told apart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.helpers.journal import FakeLM, ask, failure, journal, reply, run, spec
from tests.helpers.sqlite import connect

from workbench.lm import Request, Response
from workbench.runtime import NodeClock

TAKES = 0.05


def serving(took: list[float]) -> Callable[[Request], Awaitable[Response]]:
    """A server that takes a while, and writes down how long it took: on a busy machine more than it meant to."""

    async def slow(request: Request) -> Response:
        begun = time.perf_counter()
        await asyncio.sleep(TAKES)
        took.append(time.perf_counter() - begun)
        return reply()

    return slow


@pytest.mark.parametrize("at_once", [2, 16])
def test_friction_20_the_latency_of_a_server_does_not_depend_on_how_many_calls_we_send(
    at_once: int, tmp_path: Path
) -> None:
    with journal(tmp_path / "run.db") as ledger:
        took: list[float] = []
        lm = FakeLM(serving(took))

        async def main() -> None:
            jobs = [ledger.call(lm, ask(f"q{i}"), "task", spec(concurrency=at_once)) for i in range(16)]
            begun = time.perf_counter()
            found = await asyncio.gather(*jobs)
            whole = time.perf_counter() - begun
            assert all(one.seconds > TAKES * 0.9 and one.seconds + one.queued <= whole for one in found)
            waited = max(settled.queued for settled in found)
            assert waited > 6 * TAKES if at_once == 2 else waited < 6 * max(took)
            assert ledger.spent.seconds == pytest.approx(sum(settled.seconds for settled in found))

        run(main)
    stored = list(ledger_rows(tmp_path / "run.db"))
    assert len(stored) == 16 and all(seconds > TAKES * 0.9 for seconds, _ in stored)
    assert max(queued for _, queued in stored) > 6 * TAKES or at_once == 16


def ledger_rows(path: Path) -> list[tuple[float, float]]:

    reader = connect(path)
    try:
        return reader.execute("select seconds, queued from calls").fetchall()
    finally:
        reader.close()


def test_the_pause_before_another_attempt_is_no_latency(tmp_path: Path) -> None:
    left, took = [failure("server"), failure("rate_limit"), None], list[float]()
    with journal(tmp_path / "run.db", pause=0.2) as ledger:

        async def main() -> None:
            lm = FakeLM(lambda request: left.pop(0) or serving(took)(request))
            begun = time.perf_counter()
            settled = await ledger.call(lm, ask(), "task", spec())
            assert settled.attempts == 3 and settled.queued >= 0.4
            assert settled.seconds + settled.queued <= time.perf_counter() - begun, "nothing counts as both"

        run(main)


def test_a_nodes_time_is_its_critical_path_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("workbench.runtime.clock.time.perf_counter", lambda: now)

    def node(*calls: tuple[float, float, float], end: float) -> tuple[float, float]:
        """calls: (begin, queued, end)."""
        nonlocal now
        now = 100.0
        clock = NodeClock()
        for begun, queued, ended in sorted(calls, key=lambda call: call[2]):
            now = 100.0 + ended
            clock.add_call(100.0 + begun, queued)
        now = 100.0 + end
        return clock.read()

    assert node((0, 0, 1), (0, 1, 2), (0, 2, 3), end=3) == pytest.approx((1, 2)), "one slot for three calls"
    assert node((0, 0, 1), (1, 0, 2), end=2) == pytest.approx((2, 0)), "one after the other, nothing waited"
    assert node((0, 1, 2), (2, 1, 4), end=5) == pytest.approx((3, 2)), "each waits; one second is the node's own"
    assert node((0, 0, 2), (0, 2, 3), end=3) == pytest.approx((2, 1)), "at least the longest call"
    assert node((0, 9, 0), end=0.1) == pytest.approx((0.1, 0)), "an answer of the journal waited long ago"

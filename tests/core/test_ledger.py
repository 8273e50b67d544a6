"""The ledger: no ceiling is passed, nothing stays reserved, each call is paid once, and what is written stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.errors import BudgetSpent, LMError, SpecError, StoreError
from workbench.ledger import DEAD_AFTER, Ledger, ServerDead
from workbench.lm import Request, Response, estimate_tokens
from workbench.runtime import lm_spec
from workbench.spec import BudgetSpec
from workbench.store import Store

Say = Callable[[Request], Awaitable[Response]]


class Server:
    """An LM that a coroutine function plays; it counts what was sent."""

    identity, concurrency = "played, no model", 8

    def __init__(self, say: Say):
        self.say, self.sent, self.flying, self.most = say, 0, 0, 0

    async def complete(self, request: Request) -> Response:
        self.sent += 1
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            return await self.say(request)
        finally:
            self.flying -= 1

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return 1e-3 * (prompt_tokens + completion_tokens)

    async def aclose(self) -> None:
        pass


async def fine(request: Request) -> Response:
    await asyncio.sleep(0)
    return Response(f"to {request.messages[0]['content']}", "stop", 5, 3)


def ask(i: int, **settings: Any) -> Request:
    return Request(({"role": "user", "content": f"question {i}"},), **settings)


def on_ledger(path: Path, job: Callable[[Ledger], Awaitable[Any]], **budget: Any) -> Any:
    """Run a coroutine on a fresh process's view of run 1."""

    async def course() -> Any:
        store = Store(path / "run.db")
        store.execute(
            "insert or ignore into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')"
        )
        ledger = Ledger(store, 1, BudgetSpec.model_validate(budget))
        try:
            return await job(ledger)
        finally:
            ledger.close()
            store.close()

    return asyncio.run(course())


SPEC = lm_spec({"model": "openai/played", "attempts": 1, "timeout": 5.0})


def unreserved(ledger: Ledger) -> bool:
    return all(abs(v) < 1e-9 for v in vars(ledger._reserved).values())


# Budget


@given(
    ceiling=st.integers(1, 30),
    plan=st.lists(st.sampled_from(["fine", "fail", "flaky", "hang"]), min_size=1, max_size=25),
    what=st.sampled_from(["calls", "tokens", "usd"]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mix_of_outcomes_keeps_every_ceiling_and_leaves_nothing_reserved(
    ceiling: int, plan: list[str], what: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    budget = {"calls": ceiling, "tokens": ceiling * 12, "usd": ceiling * 12e-3}[what]
    tries: dict[int, int] = {}

    async def say(request: Request) -> Response:
        i = int(request.messages[0]["content"].split()[1])
        tries[i] = tries.get(i, 0) + 1
        await asyncio.sleep(0.0001 * (i % 3))
        if plan[i] == "fail" or (plan[i] == "flaky" and tries[i] == 1):
            raise LMError("server", "no", retry_after=0.0)
        if plan[i] == "hang":
            await asyncio.sleep(60)
        return Response("x", "stop", 3, 2)

    server = Server(say)
    spec = lm_spec({"model": "openai/played", "attempts": 2, "timeout": 5.0})

    async def job(ledger: Ledger) -> None:
        tasks = [asyncio.create_task(ledger.call(server, ask(i, max_tokens=4), "task", spec)) for i in range(len(plan))]
        done, hanging = await asyncio.wait(tasks, timeout=0.05)
        for task in hanging:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert not isinstance(outcome, BaseException) or isinstance(
                outcome, BudgetSpent | asyncio.CancelledError
            ), outcome
        assert unreserved(ledger)
        assert getattr(ledger.sent, what) <= budget + 1e-9
        if what == "calls":
            assert server.sent <= ceiling

    on_ledger(tmp_path_factory.mktemp("mix"), job, **{what: budget})


def test_a_ceiling_is_used_to_its_last_call(tmp_path: Path) -> None:
    server = Server(fine)

    async def job(ledger: Ledger) -> list[Any]:
        return await asyncio.gather(*(ledger.call(server, ask(i), "task", SPEC) for i in range(9)),
                                    return_exceptions=True)  # fmt: skip

    outcomes = on_ledger(tmp_path, job, calls=5)
    assert server.sent == 5 and sum(isinstance(o, BudgetSpent) for o in outcomes) == 4


def test_what_is_held_for_the_proof_is_not_searchs(tmp_path: Path) -> None:
    server = Server(fine)

    async def job(ledger: Ledger) -> None:
        ledger.hold(calls=7)
        assert ledger.remaining("calls") == 3
        for i in range(3):
            await ledger.call(server, ask(i), "task", SPEC)
        with pytest.raises(BudgetSpent):
            await ledger.call(server, ask(3), "task", SPEC)
        ledger.hold(calls=0)
        await ledger.call(server, ask(3), "task", SPEC)

    on_ledger(tmp_path, job, calls=10)


def test_without_a_price_a_budget_of_dollars_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    server = Server(fine)
    server.price = lambda prompt_tokens, completion_tokens: None  # type: ignore[method-assign]

    async def job(ledger: Ledger) -> None:
        with pytest.raises(SpecError, match="price"):
            await ledger.call(server, ask(0), "task", SPEC)

    on_ledger(tmp_path, job, usd=1.0)
    assert server.sent == 0


def test_the_estimate_of_a_prompt_counts_bytes_where_characters_are_many_tokens() -> None:
    assert estimate_tokens(({"role": "user", "content": "a" * 30},)) == 14
    assert estimate_tokens(({"role": "user", "content": "漢" * 30},)) == 34
    assert estimate_tokens(({"role": "user", "content": None},)) == 4


# Journal


def test_the_same_call_is_sent_once_also_at_the_same_time_and_in_a_later_process(tmp_path: Path) -> None:
    server = Server(fine)

    async def job(ledger: Ledger) -> list[str]:
        found = await asyncio.gather(*(ledger.call(server, ask(i % 2), "task", SPEC) for i in range(8)))
        assert ledger.spent.calls == 2
        return [f.response.text for f in found if f.response]

    first = on_ledger(tmp_path, job, calls=5)
    assert server.sent == 2
    assert on_ledger(tmp_path, job, calls=5) == first and server.sent == 2


def test_replicas_are_different_draws_and_other_settings_other_calls() -> None:
    keys = {ask(1, **s).key("m") for s in ({}, {"replica": 1}, {"temperature": 0.5}, {"max_tokens": 9}, {"top_p": 0.5})}
    assert len(keys) == 5 and ask(1).key("m") != ask(1).key("n")


def test_a_refused_key_is_not_journalled(tmp_path: Path) -> None:
    async def refuse(request: Request) -> Response:
        raise LMError("auth", "wrong key", status=401)

    async def job(ledger: Ledger) -> None:
        with pytest.raises(LMError, match="wrong key"):
            await ledger.call(Server(refuse), ask(1), "task", SPEC)
        assert unreserved(ledger)

    on_ledger(tmp_path, job, calls=5)
    mended = Server(fine)

    async def again(ledger: Ledger) -> Any:
        return await ledger.call(mended, ask(1), "task", SPEC)

    assert on_ledger(tmp_path, again, calls=5).response.text == "to question 1" and mended.sent == 1


def test_a_failure_for_good_is_journalled_and_costs_its_attempts_once(tmp_path: Path) -> None:
    async def fail(request: Request) -> Response:
        raise LMError("server", "down", retry_after=0.0)

    server, spec = Server(fail), lm_spec({"model": "openai/played", "attempts": 3})

    async def job(ledger: Ledger) -> tuple[str, int]:
        settled = await ledger.call(server, ask(1), "task", spec)
        assert settled.error is not None
        return settled.error.kind, ledger.spent.calls

    assert on_ledger(tmp_path, job, calls=9) == ("server", 3)
    assert on_ledger(tmp_path, job, calls=9) == ("server", 3) and server.sent == 3


def test_a_call_that_was_cancelled_counts_as_sent_and_can_be_asked_again(tmp_path: Path) -> None:
    async def hang(request: Request) -> Response:
        await asyncio.sleep(60)
        raise AssertionError

    async def job(ledger: Ledger) -> None:
        task = asyncio.create_task(ledger.call(Server(hang), ask(1), "task", SPEC))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert unreserved(ledger) and ledger.sent.calls == 1 and not ledger._flying

    on_ledger(tmp_path, job, calls=2)

    async def again(ledger: Ledger) -> None:
        await ledger.call(Server(fine), ask(1), "task", SPEC)
        assert ledger.sent.calls == 2 and ledger.unknown == 1  # nobody knows whether the first was answered
        with pytest.raises(BudgetSpent):
            await ledger.call(Server(fine), ask(2), "task", SPEC)

    on_ledger(tmp_path, again, calls=2)


def test_one_who_waits_for_anothers_call_takes_over_when_that_is_cancelled(tmp_path: Path) -> None:
    gate = asyncio.Event

    async def job(ledger: Ledger) -> None:
        opened = gate()

        async def slow(request: Request) -> Response:
            await opened.wait()
            return await fine(request)

        server = Server(slow)
        one = asyncio.create_task(ledger.call(server, ask(1), "task", SPEC))
        two = asyncio.create_task(ledger.call(server, ask(1), "task", SPEC))
        await asyncio.sleep(0.01)
        one.cancel()
        await asyncio.sleep(0.01)
        opened.set()
        settled = await two
        assert settled.response is not None and server.sent == 2

    on_ledger(tmp_path, job, calls=5)


def test_large_texts_are_kept_once(tmp_path: Path) -> None:
    long = "word " * 200

    async def job(ledger: Ledger) -> tuple[int, int]:
        for i in range(5):
            request = Request(({"role": "system", "content": long}, {"role": "user", "content": f"q {i}"}))
            await ledger.call(Server(fine), request, "task", SPEC)
        ledger.store.flush()
        rows = list(ledger.store.rows("select request from calls"))
        texts = list(ledger.store.rows("select text from texts"))
        assert texts[0]["text"] == long
        return len(texts), max(len(r["request"]) for r in rows)

    count, longest = on_ledger(tmp_path, job, calls=9)
    assert count == 1 and longest < 300


def test_a_dead_server_stops_the_run_and_a_resumed_one_asks_again(tmp_path: Path) -> None:
    async def dead(request: Request) -> Response:
        raise LMError("connection", "refused")

    server = Server(dead)

    async def job(ledger: Ledger) -> None:
        with pytest.raises(ServerDead, match="in a row"):
            for i in range(DEAD_AFTER + 5):
                await ledger.call(server, ask(i), "task", SPEC)

    on_ledger(tmp_path, job, calls=99)
    assert server.sent == DEAD_AFTER

    async def again(ledger: Ledger) -> str:
        settled = await ledger.call(Server(fine), ask(0), "task", SPEC)
        return settled.response.text if settled.response else ""

    assert on_ledger(tmp_path, again, calls=99) == "to question 0"


def test_answers_in_between_keep_a_shaky_server_alive(tmp_path: Path) -> None:
    async def shaky(request: Request) -> Response:
        if int(request.messages[0]["content"].split()[1]) % 10:
            raise LMError("server", "no")
        return await fine(request)

    async def job(ledger: Ledger) -> None:
        for i in range(60):
            await ledger.call(Server(shaky), ask(i), "task", SPEC)
        assert ledger.stopping is None

    on_ledger(tmp_path, job, calls=99)


def test_a_providers_bug_is_one_failed_call(tmp_path: Path) -> None:
    async def bug(request: Request) -> Response:
        raise ZeroDivisionError("oops")

    async def job(ledger: Ledger) -> Any:
        return await ledger.call(Server(bug), ask(1), "task", SPEC)

    settled = on_ledger(tmp_path, job, calls=5)
    assert settled.error.kind == "provider" and "ZeroDivisionError" in str(settled.error)


def test_a_call_has_a_total_deadline(tmp_path: Path) -> None:
    async def drip(request: Request) -> Response:
        for _ in range(1000):
            await asyncio.sleep(0.01)
        raise AssertionError

    spec = lm_spec({"model": "openai/played", "attempts": 1, "timeout": 0.05})

    async def job(ledger: Ledger) -> Any:
        return await asyncio.wait_for(ledger.call(Server(drip), ask(1), "task", spec), 2)

    assert on_ledger(tmp_path, job, calls=5).error.kind == "timeout"


def test_an_effect_is_run_once_and_its_failure_is_not_kept(tmp_path: Path) -> None:
    runs: list[int] = []

    async def work() -> dict[str, int]:
        runs.append(1)
        if len(runs) == 1:
            raise OSError("first time")
        return {"n": len(runs)}

    async def job(ledger: Ledger) -> list[Any]:
        with pytest.raises(OSError, match="first time"):
            await ledger.effect("tool", ["a"], work)
        return [await ledger.effect("tool", ["a"], work) for _ in range(3)]

    assert on_ledger(tmp_path, job, calls=5) == [{"n": 2}] * 3


def test_a_full_disk_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    async def job(ledger: Ledger) -> int:
        pages = ledger.store.conn.execute("pragma page_count").fetchone()[0]
        ledger.store.conn.execute(f"pragma max_page_count={pages + 12}")
        done = 0
        with pytest.raises(StoreError, match="full.*what was recorded before is safe"):
            for i in range(500):
                request = Request(({"role": "user", "content": f"question {i} " + "x" * 200},))
                await ledger.call(Server(fine), request, "task", SPEC)
                done += 1
        return done

    done = 0

    async def filled(ledger: Ledger) -> None:
        nonlocal done
        done = await job(ledger)

    try:
        on_ledger(tmp_path, filled, calls=1000)
    except StoreError:
        pass  # closing the store says the same
    assert done > 5
    store = Store(tmp_path / "run.db")
    try:
        assert store.row("select count(*) from calls")[0] >= done  # type: ignore[index]
        assert store.row("pragma integrity_check")[0] == "ok"  # type: ignore[index]
    finally:
        store.close()

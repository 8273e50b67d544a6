"""Attempts of a call: cancelled ones and failed ones."""

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
    scripted,
    spec,
    turns,
)

from workbench.errors import BudgetSpent, LMError, ServerDead
from workbench.ledger import Ledger
from workbench.ledger.retry import DEAD_AFTER, LONGEST_PAUSE, pause_before
from workbench.lm import Request, Response, estimate_tokens

# Cancellation


@pytest.mark.parametrize("where", ["in flight", "waiting for a slot", "between attempts", "while it is recorded"])
def test_a_cancelled_call_leaves_no_reservation(where: str, tmp_path: Path) -> None:
    async def hang(request: Request) -> Any:
        if request.messages[0]["content"] == "cancelled" and where != "in flight":
            return LMError("server", "down") if where == "between attempts" else reply()
        await asyncio.sleep(3600)

    lm = FakeLM(hang, concurrency=1 if where == "waiting for a slot" else 8)

    async def main() -> tuple[int, int]:
        with journal(tmp_path / "run.db", pause=3600.0, calls=9, tokens=5000, usd=5.0) as ledger:
            other = asyncio.create_task(ledger.call(lm, ask("other"), "task", spec()))
            await turns(5)
            call = asyncio.create_task(ledger.call(lm, ask("cancelled"), "task", spec()))
            await turns(1)
            while where == "while it is recorded" and len(lm.requests) < 2:
                await turns(1)
            if where in ("in flight", "between attempts"):
                await asyncio.sleep(0.03)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert set(ledger._flying) == {ask("other").key("fake")}
            assert ledger.ceilings.reserved.prompt_tokens == estimate_tokens(ask("other").messages)
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
            assert nothing_reserved(ledger) and not ledger._flying
            sent = ledger.sent.calls
        with journal(tmp_path / "run.db", calls=9) as ledger:
            ledger.open()
            assert ledger.sent.calls == sent == len(lm.requests), "all that left counts"
            return sent, ledger.bill.unknown

    sent, unknown = run(main)
    assert (sent, unknown) == {
        "in flight": (2, 2),
        "waiting for a slot": (1, 1),
        "between attempts": (2, 1),
        "while it is recorded": (2, 1),
    }[where]


@pytest.mark.parametrize("end", ["cancelled", "auth", "answered"])
def test_a_call_that_is_not_recorded_leaves_nothing_behind(end: str, tmp_path: Path) -> None:
    """A gateway serves for weeks: what its clients gave up between two attempts must not add up."""
    said = {"auth": LMError("auth", "no key"), "answered": reply()}
    answers = [LMError("server", "down"), said.get(end, LMError("server", "down"))]

    async def answer(request: Request) -> Any:
        return answers.pop(0)

    async def main() -> None:
        pause = 3600.0 if end == "cancelled" else 0.0
        with journal(tmp_path / "run.db", pause=pause, recorded=False, calls=9) as ledger:
            call = asyncio.create_task(ledger.call(FakeLM(answer), ask("x"), "task", spec()))
            await asyncio.sleep(0.03)
            if end == "cancelled":
                call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert len(answers) == (end == "cancelled") and not ledger._failed and not ledger._flying

    run(main)


def test_a_call_that_is_cancelled_while_it_is_recorded_takes_no_other_along(tmp_path: Path) -> None:
    """Both answers wait for the same commit."""
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return reply()

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            tasks = [asyncio.create_task(ledger.call(FakeLM(wait), ask(x), "task", spec())) for x in "ab"]
            await turns(5)
            gate.set()
            while ledger.spent.calls < 2:
                await turns(1)
            tasks[0].cancel()
            assert (await tasks[1]).response == reply()
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            row = ledger.store.row("select count(*) from calls")
            assert row is not None and row[0] == 2 and nothing_reserved(ledger)

    run(main)


def test_equal_requests_share_one_call_and_the_second_goes_on_if_the_first_is_cancelled(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return reply()

    lm = FakeLM(wait)

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            tasks = [asyncio.create_task(ledger.call(lm, ask(), "task", spec())) for _ in range(4)]
            await turns(5)
            assert len(lm.requests) == 1
            tasks[0].cancel()
            await turns(9)
            assert len(lm.requests) == 2, "one of the others took over, and only one"
            gate.set()
            settled = [await t for t in tasks[1:]]
            assert {s.response.text for s in settled if s.response} == {"yes"}
            assert sorted(s.cached for s in settled) == [False, True, True]
            assert ledger.spent.calls == 1 and ledger.spent.cached == 2 and ledger.sent.calls == 2

    run(main)


# Attempts


def test_attempts_are_counted_and_recorded(tmp_path: Path) -> None:
    lm = scripted(failure(), failure("timeout"), reply(prompt=7, completion=3))

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            settled = await ledger.call(lm, ask(), "judge", spec(attempts=4))
            assert (settled.attempts, settled.cached, settled.error) == (3, False, None)
            assert (ledger.spent.calls, ledger.retries, ledger.sent.calls) == (3, 2, 3)
            assert (ledger.spent.prompt_tokens, ledger.by_role["judge"].completion_tokens) == (7, 3)
            rows = list(ledger.store.rows("select outcome, message from attempts order by id"))
            assert [tuple(r) for r in rows] == [("server", "planted server"), ("timeout", "planted timeout")]

    run(main)


@pytest.mark.parametrize(
    ("kind", "billed"),
    [
        ("timeout", True),
        ("broken", True),
        ("bad_body", True),
        ("connection", False),
        ("server", False),
        ("rate_limit", False),
    ],
)
def test_the_worst_case_of_an_attempt_that_may_be_billed_counts_against_the_ceilings(
    kind: str, billed: bool, tmp_path: Path
) -> None:
    """In this process and in a later one; what optimizers see of the budget knows nothing of it."""
    prompt = estimate_tokens(ask().messages)
    worst = FakeLM().price(prompt, 10) or 0.0

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9, usd=1.0) as ledger:
            await ledger.call(scripted(failure(kind), reply(prompt=7, completion=3)), ask(), "task", spec(attempts=2))
            answered, wasted = 7e-3 + 6e-3, billed * worst
            for _ in range(2):
                assert ledger.sent.usd == pytest.approx(answered + wasted) and ledger.spent.usd == pytest.approx(
                    answered
                )
                assert ledger.sent.tokens == 10 + billed * (prompt + 10) and ledger.sent.calls == 2
                assert ledger.summary()["maybe_usd"] == pytest.approx(wasted)
                assert ledger.summary()["maybe_tokens"] == billed * (prompt + 10)
                ledger._open = False
                ledger.open()
        with journal(tmp_path / "run.db", calls=9, usd=answered + worst + wasted - 1e-6) as ledger:
            with pytest.raises(BudgetSpent):
                await ledger.call(scripted(reply()), ask("other"), "task", spec())

    run(main)


def test_timeouts_use_up_a_ceiling_of_tokens(tmp_path: Path) -> None:
    """Their answers may have been written: prompt and completion count, at worst."""
    lm, worst = FakeLM(lambda request: failure("timeout")), estimate_tokens(ask().messages) + 10

    async def main() -> None:
        with journal(tmp_path / "run.db", tokens=4 * worst) as ledger:
            with pytest.raises(BudgetSpent, match="tokens"):
                for n in range(12):
                    await ledger.call(lm, ask(f"{n:05}"), "task", spec(attempts=1))

    run(main)
    assert len(lm.requests) == 4


@pytest.mark.parametrize(("kind", "requests"), [("server", 3), ("bad_body", 3), ("bad_request", 1), ("too_long", 1)])
def test_only_what_may_mend_is_tried_again_and_the_end_is_journalled(kind: str, requests: int, tmp_path: Path) -> None:
    lm = FakeLM(lambda request: failure(kind))

    async def main() -> None:
        for _ in range(2):  # again as another process: from the journal
            with journal(tmp_path / "run.db", calls=9) as ledger:
                settled = await ledger.call(lm, ask(), "task", spec(attempts=3))
                assert settled.response is None and settled.error is not None
                assert (settled.error.kind, str(settled.error)) == (kind, f"planted {kind}")
                assert settled.attempts == ledger.spent.calls == ledger.sent.calls == requests
                assert ledger.retries == requests - 1

    run(main)
    assert len(lm.requests) == requests


def test_a_bug_of_a_provider_is_one_failed_call(tmp_path: Path) -> None:
    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            settled = await ledger.call(scripted(KeyError("choices")), ask(), "task", spec())
            assert settled.error is not None and settled.error.kind == "provider"
            assert "KeyError" in str(settled.error) and nothing_reserved(ledger)

    run(main)


def test_a_deadline_ends_an_attempt_whatever_it_does(tmp_path: Path) -> None:
    async def drip(request: Request) -> Any:
        while True:
            await asyncio.sleep(0.005)

    lm = FakeLM(drip)

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            settled = await ledger.call(lm, ask(), "task", spec(attempts=2, timeout=0.05))
            assert settled.error is not None and settled.error.kind == "timeout"
            assert "0.05 s" in str(settled.error) and nothing_reserved(ledger)

    run(main)
    assert len(lm.requests) == 2 and lm.open == 0


def test_pauses_double_and_follow_the_server_up_to_a_limit() -> None:
    jitter = random.Random(0)
    for attempt, asked, least in [
        (1, None, 0.5),
        (2, None, 1.0),
        (4, None, 4.0),
        (1, 7.0, 7.0),
        (1, 0.0, 0.5),
        (3, 0.0, 2.0),
        (1, -5.0, 0.5),
        (1, float("nan"), 0.5),
        (1, 86400.0, LONGEST_PAUSE),
        (5000, None, LONGEST_PAUSE),
    ]:
        for _ in range(20):
            pause = pause_before(attempt, asked, jitter)
            assert least <= pause <= least * 1.25
    assert len({pause_before(1, None, jitter) for _ in range(9)}) > 1, "jitter keeps clients apart"


@pytest.mark.parametrize("again", ["same process", "another process"])
def test_attempts_that_the_budget_cut_short_are_counted_once(again: str, tmp_path: Path) -> None:
    """The retry did not fit under what search may use; later (for the proof) the same call is asked again."""
    lm = scripted(failure(), reply())

    async def second(ledger: Ledger) -> None:
        settled = await ledger.call(lm, ask(), "task", spec())
        assert settled.attempts == 2 and ledger.spent.calls == ledger.sent.calls == len(lm.requests) == 2
        assert ledger.retries == 1

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            ledger.reserve_for_proof(calls=8)
            with pytest.raises(BudgetSpent):
                await ledger.call(lm, ask(), "task", spec())
            assert ledger.spent.calls == 1
            if again == "same process":
                ledger.reserve_for_proof()
                await second(ledger)
        with journal(tmp_path / "run.db", calls=9) as ledger:
            if again == "another process":
                await second(ledger)
        with journal(tmp_path / "run.db", calls=9) as ledger:  # a replay counts the same
            await second(ledger)

    run(main)


def test_a_refused_key_is_not_journalled(tmp_path: Path) -> None:
    lm = scripted(failure("auth", status=401), failure("auth", status=403))

    async def main() -> None:
        for refused in (1, 2):
            with journal(tmp_path / "run.db", calls=3) as ledger:
                with pytest.raises(LMError, match="planted auth"):
                    await ledger.call(lm, ask(), "task", spec(attempts=4))
                assert nothing_reserved(ledger)
                assert len(lm.requests) == refused == ledger.spent.calls == ledger.sent.calls
                assert ledger.store.row("select 1 from calls") is None
        with journal(tmp_path / "run.db", calls=3) as ledger:  # the key was mended
            settled = await ledger.call(lm, ask(), "task", spec(attempts=4))
            assert settled.response is not None and settled.attempts == 3
            with pytest.raises(BudgetSpent):
                await ledger.call(lm, ask("more"), "task", spec())

    run(main)


def test_cancelled_requests_stay_on_the_bill_when_the_call_is_answered_later(tmp_path: Path) -> None:
    async def answer(request: Request) -> Response:
        if len(lm.requests) <= 3:
            await asyncio.sleep(3600)
        return reply(prompt=3, completion=2)

    lm = FakeLM(answer)

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9, tokens=900) as ledger:
            for _ in range(3):
                call = asyncio.create_task(ledger.call(lm, ask(), "task", spec()))
                await asyncio.sleep(0.02)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            await ledger.call(lm, ask(), "task", spec())
            worst = estimate_tokens(ask().messages) + ask().max_tokens
            sent = ledger.sent
            assert sent.calls == 4 and sent.prompt_tokens == 3 * worst + 3 and sent.completion_tokens == 2
            bill = ledger.bill.as_dict()
            assert bill["unknown"] == 3 and bill["maybe_tokens"] == 3 * worst and bill["failed"] == {}
        with journal(tmp_path / "run.db", calls=9, tokens=900) as ledger:
            ledger.open()
            assert (ledger.sent.calls, ledger.sent.tokens) == (
                sent.calls,
                sent.tokens,
            ) and ledger.bill.as_dict() == bill

    run(main)


def test_prompts_that_were_longer_than_estimated_raise_the_next_estimates(tmp_path: Path) -> None:
    """A model that counts three times what the texts suggest: only the first requests can pass a ceiling by it."""
    prompt = estimate_tokens(ask("word " * 40).messages)
    lm = FakeLM(lambda request: reply(prompt=3 * prompt, completion=1))

    async def main() -> None:
        ceiling = 12 * prompt - 10  # as the texts suggest, a fourth call would bring it to 10 prompts; in truth to 12
        with journal(tmp_path / "run.db", tokens=ceiling) as ledger:
            with pytest.raises(BudgetSpent, match="tokens"):
                for n in range(9):
                    await ledger.call(lm, ask("word " * 40, extra={"n": n}), "task", spec())
            assert ledger.sent.tokens <= ceiling and len(lm.requests) == 3
            other = FakeLM()
            other.identity = "another"
            await ledger.call(other, ask("x"), "task", spec())
            assert len(other.requests) == 1, "each model has its own"

    run(main)


@pytest.mark.parametrize(
    ("status", "said", "first", "later"),
    [
        (403, "status 403: forbidden", "auth", "blocked"),
        (401, "status 401: <html><title>Sign in</title>", "auth", "blocked"),
        (401, 'status 401: {"error": "the key was revoked"}', "auth", "auth"),
        (402, "status 402: the account is empty", "auth", "auth"),
    ],
)
def test_r10_a_key_that_was_accepted_is_not_blamed_for_one_refused_row(
    status: int, said: str, first: str, later: str, tmp_path: Path
) -> None:
    async def main(answers: list[Any]) -> str:
        lm = scripted(*answers)
        with journal(tmp_path / f"{len(answers)}.db") as ledger:
            for n, _ in enumerate(answers):
                try:
                    settled = await ledger.call(lm, ask(f"call {n}"), "task", spec(attempts=1))
                except LMError as error:
                    return str(error.kind)
        return str(settled.error.kind) if settled.error is not None else ""

    refusal = LMError("auth", said, status=status)
    assert asyncio.run(main([refusal])) == first
    assert asyncio.run(main([reply(), LMError("auth", said, status=status)])) == later


@pytest.mark.parametrize("refused", range(4))
def test_r10_which_call_comes_back_first_says_nothing_of_the_key(refused: int, tmp_path: Path) -> None:
    """One of four calls that are sent together is refused at once, and the others are answered later, or refused."""

    async def main(others: Any) -> list[str]:
        lm, together = scripted(), asyncio.Barrier(4)

        async def complete(request: Request) -> Response:
            await together.wait()
            if str(request.messages[-1]["content"]).endswith(str(refused)):
                raise LMError("auth", "status 403: forbidden", status=403)
            await asyncio.sleep(0.05)
            if isinstance(others, Exception):
                raise LMError("auth", "status 403: forbidden", status=403)
            return others

        lm.complete = complete  # type: ignore[method-assign]
        with journal(tmp_path / f"{type(others).__name__}.db") as ledger:
            calls = [ledger.call(lm, ask(f"call {n}"), "task", spec(attempts=1)) for n in range(4)]
            found = await asyncio.gather(*calls, return_exceptions=True)
        return [str(one.kind if isinstance(one, LMError) else one.error.kind if one.error else "") for one in found]

    answered = asyncio.run(main(reply()))
    assert answered.pop(refused) == "blocked" and answered == [""] * 3
    assert {*asyncio.run(main(ValueError()))} == {"auth"}


def test_r10_a_key_that_an_earlier_run_used_is_not_blamed_for_one_refused_row(tmp_path: Path) -> None:
    """As with --cache and resume, where the row that was refused before is the first that is sent."""

    async def main(answer: Any, said: str) -> str:
        with journal(tmp_path / "a.db") as ledger:
            settled = await ledger.call(scripted(answer), ask(said), "task", spec(attempts=1))
        return str(settled.error.kind) if settled.error is not None else ""

    assert asyncio.run(main(reply(), "one")) == ""
    assert asyncio.run(main(LMError("auth", "status 403: forbidden", status=403), "two")) == "blocked"


# Failures that a client of ours is told


PASSED = (529, {"x-own": "kept"}, b"busy")


@pytest.mark.parametrize("attempts", [None, 3])
@pytest.mark.parametrize("kind", ["server", "rate_limit"])
def test_a_failure_that_passes_is_the_clients_to_retry_and_is_not_journalled(
    kind: str, attempts: int | None, tmp_path: Path
) -> None:
    answers: list[Any] = [LMError(kind, "busy", passed=PASSED)] * 2 + [reply()] * 2

    async def answer(request: Request) -> Any:
        return answers.pop(0)

    async def main() -> None:
        lm, own = FakeLM(answer), spec() if attempts is None else spec(attempts=attempts)
        with journal(tmp_path / "run.db", calls=9) as ledger:
            if kind == "server" and attempts is None:
                for _ in range(2):
                    with pytest.raises(LMError) as caught:
                        await ledger.call(lm, ask("x"), "task", own)
                    assert caught.value.passed == PASSED
            settled = await ledger.call(lm, ask("x"), "task", own)
            assert settled.error is None and settled.attempts == 3 and ledger.spent.calls == 3

    run(main)
    assert len(answers) == 1


@pytest.mark.parametrize("kind", ["server", "rate_limit", "auth"])
def test_who_alone_decides_when_to_ask_again_is_not_held_back(kind: str, tmp_path: Path) -> None:
    """A gateway's clients: neither a pause, nor a server that seems dead, nor a key that was refused stands in the way
    of the next request."""
    answers: list[Any] = [LMError(kind, "no", passed=PASSED)] * 40 + [reply()]

    async def answer(request: Request) -> Any:
        return answers.pop(0)

    async def main() -> None:
        slowed = list[Any]()
        with journal(tmp_path / "run.db", pause=3600.0, recorded=False) as ledger:
            ledger.on_slowed = lambda *told: slowed.append(told)
            lm = FakeLM(answer)
            for _ in range(40):
                with pytest.raises(LMError):
                    await ledger.call(lm, ask("x"), "task", spec(attempts=1))
            assert (await ledger.call(lm, ask("x"), "task", spec(attempts=1))).error is None
        assert not slowed

    run(main)


def test_a_server_that_fails_all_clients_in_a_row_ends_the_run(tmp_path: Path) -> None:
    async def answer(request: Request) -> Any:
        return LMError("server", "busy", passed=PASSED)

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=99) as ledger:
            for n in range(DEAD_AFTER - 1):
                with pytest.raises(LMError):
                    await ledger.call(FakeLM(answer), ask(str(n)), "task", spec())
            with pytest.raises(ServerDead):
                await ledger.call(FakeLM(answer), ask("last"), "task", spec())

    run(main)

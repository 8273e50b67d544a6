"""Budget and journal: no ceiling is passed, nothing stays reserved, nothing recorded is paid again."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.journal import FakeLM, ask, journal, reply, run, spec, turns

from workbench.errors import BudgetSpent, LMError, SpecError, StoreError
from workbench.history import call_texts
from workbench.ledger import DEAD_AFTER, LARGE, LONGEST_WAIT, Ledger, ServerDead, Spend
from workbench.lm import Request, Response, estimate_tokens


def nothing_reserved(ledger: Ledger) -> bool:
    left = ledger._reserved
    return left.calls == left.tokens == 0 and abs(left.usd) < 1e-9


# The ceiling

OUTCOMES = ("ok", "ok", "ok", "server", "rate_limit", "timeout", "bad_request", "bug", "hang", "refusal")


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "outcomes": draw(st.lists(st.sampled_from(OUTCOMES), min_size=3, max_size=3)),
        "prompt": draw(st.integers(0, 40)),
        "max_tokens": draw(st.integers(1, 30)),
        "share": draw(st.floats(0, 1)),  # of max_tokens that the answer takes
        "begin": draw(st.integers(0, 6)),
        "take": draw(st.integers(0, 5)),
        "cancel": draw(st.one_of(st.none(), st.integers(0, 12))),
        "twin": draw(st.booleans()),  # the same request twice
    }


@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    plan=st.lists(calls(), min_size=1, max_size=14),
    ceiling=st.fixed_dictionaries(
        {},
        optional={"calls": st.integers(1, 20), "tokens": st.integers(1, 300), "usd": st.floats(0.001, 0.4)},
    ),
    hold=st.integers(0, 5),
    attempts=st.integers(1, 3),
    concurrency=st.integers(1, 6),
)
def test_no_interleaving_passes_a_ceiling_or_leaves_a_reservation(
    plan: list[dict[str, Any]], ceiling: dict[str, Any], hold: int, attempts: int, concurrency: int
) -> None:
    """Any mix of answers, failures, retries, cancellations and equal requests, under any ceilings."""
    used = Spend()  # what a bill would say, counted here and not by the ledger
    worst = Spend()  # what is under way, at its worst
    passed: list[Spend] = []

    def fits(total: Spend) -> bool:
        limit = {what: value - (hold if what == "calls" else 0) for what, value in ceiling.items()}
        return all(getattr(total, what) <= value + 1e-9 for what, value in limit.items())

    def together() -> Spend:
        return Spend(
            used.calls, 0, used.prompt_tokens + worst.prompt_tokens,
            used.completion_tokens + worst.completion_tokens, used.usd + worst.usd,
        )  # fmt: skip

    async def answer(request: Request) -> Any:
        step = plan[request.extra["n"]]
        prompt = estimate_tokens(request.messages)
        most = lm.price(prompt, request.max_tokens) or 0.0
        used.calls += 1
        worst.prompt_tokens += prompt
        worst.completion_tokens += request.max_tokens
        worst.usd += most
        if not fits(together()):
            passed.append(together())  # an exception here would be one more failed call
        try:
            await turns(step["take"])
            outcome = step["outcomes"].pop() if step["outcomes"] else "ok"
            if outcome == "hang":
                await asyncio.sleep(3600)
            if outcome == "bug":
                raise RuntimeError("a bug of the provider")
            if outcome not in ("ok", "refusal"):
                raise LMError(outcome, "planted")
        finally:
            worst.prompt_tokens -= prompt
            worst.completion_tokens -= request.max_tokens
            worst.usd -= most
        completion = int(step["share"] * request.max_tokens)
        used.prompt_tokens += prompt
        used.completion_tokens += completion
        used.usd += lm.price(prompt, completion) or 0.0
        return reply("x", prompt, completion, finish="refusal" if outcome == "refusal" else "stop")

    lm = FakeLM(answer, concurrency)

    async def one(ledger: Ledger, n: int) -> None:
        step = plan[n]
        await turns(step["begin"])
        request = ask("w" * step["prompt"], max_tokens=step["max_tokens"], extra={"n": n})
        try:
            await ledger.call(lm, request, "task", spec(attempts=attempts, timeout=0.03))
        except BudgetSpent as error:
            assert error.what in ceiling

    async def course(ledger: Ledger) -> None:
        numbers = [n for n, step in enumerate(plan) for _ in range(1 + step["twin"])]
        tasks = [asyncio.create_task(one(ledger, n)) for n in numbers]
        for turn in range(14):
            await turns(1)
            for n, task in zip(numbers, tasks, strict=True):
                if plan[n]["cancel"] == turn:
                    task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome

    with tempfile.TemporaryDirectory() as folder, journal(Path(folder) / "run.db", **ceiling) as ledger:
        ledger.hold(calls=hold)
        run(lambda: course(ledger))
        assert nothing_reserved(ledger) and not ledger._flying
        assert not passed, (passed, ceiling)
        assert ledger.sent.calls == used.calls
        assert (ledger.sent.prompt_tokens, ledger.sent.completion_tokens) == (
            used.prompt_tokens,
            used.completion_tokens,
        )
        assert ledger.sent.usd == pytest.approx(used.usd)


def test_the_ceiling_is_used_to_the_last_call(tmp_path: Path) -> None:
    lm = FakeLM()

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=5) as ledger:
            for n in range(5):
                await ledger.call(lm, ask(str(n)), "task", spec())
            with pytest.raises(BudgetSpent, match="calls has a ceiling of 5; one more call could bring it to 6"):
                await ledger.call(lm, ask("one more"), "task", spec())
            await ledger.call(lm, ask("3"), "task", spec())  # from the journal: costs nothing
            assert ledger.remaining() == 0 and ledger.spent.cached == 1

    run(course)
    assert len(lm.requests) == 5


def test_what_is_held_for_the_proof_is_not_for_search(tmp_path: Path) -> None:
    async def course() -> None:
        with journal(tmp_path / "run.db", calls=5, tokens=10_000) as ledger:
            ledger.hold(calls=3, tokens=9_900)
            assert ledger.remaining() == 2 and ledger.remaining("tokens") == 100
            assert ledger.remaining("usd") == float("inf")
            for n in range(2):
                await ledger.call(FakeLM(), ask(str(n)), "task", spec())
            with pytest.raises(
                BudgetSpent, match="ceiling of 5, 3 of it set aside for the proof; one more .* bring it to 3"
            ):
                await ledger.call(FakeLM(), ask("x"), "task", spec())
            ledger.hold()
            await ledger.call(FakeLM(), ask("x"), "task", spec())
            assert ledger.remaining() == 2

    run(course)


def test_the_last_call_under_way_holds_its_place(tmp_path: Path) -> None:
    """Two calls fit under the ceiling one after the other, by what they use; at the same time their worst does not."""
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return reply(prompt=5, completion=1)

    async def course() -> None:
        with journal(tmp_path / "run.db", tokens=30) as ledger:
            first = asyncio.create_task(ledger.call(FakeLM(wait), ask("a"), "task", spec()))
            await turns(5)
            assert ledger.remaining("tokens") < 20
            with pytest.raises(BudgetSpent, match="tokens"):
                await ledger.call(FakeLM(), ask("b", max_tokens=20), "task", spec())
            gate.set()
            await first
            await ledger.call(FakeLM(), ask("b", max_tokens=19), "task", spec())
            assert nothing_reserved(ledger)

    run(course)


def test_minutes_count_earlier_processes(tmp_path: Path) -> None:
    async def course() -> None:
        with journal(tmp_path / "run.db", minutes=1) as ledger:
            ledger.earlier_seconds = 59.0
            await ledger.call(FakeLM(), ask("a"), "task", spec())
            assert 0 < ledger.remaining("minutes") <= 1 / 60
            ledger.earlier_seconds = 61.0
            with pytest.raises(BudgetSpent, match="minutes"):
                await ledger.call(FakeLM(), ask("b"), "task", spec())
            assert ledger.remaining("minutes") == 0

    run(course)


def test_dollars_need_a_price(tmp_path: Path) -> None:
    class Unpriced(FakeLM):
        def price(self, prompt_tokens: int, completion_tokens: int) -> None:
            return None

    async def course() -> None:
        lm = Unpriced()
        with journal(tmp_path / "run.db", usd=1.0) as ledger:
            with pytest.raises(SpecError, match="price of fake is not known\n.*price: {input"):
                await ledger.call(lm, ask(), "task", spec())
            assert not lm.requests and nothing_reserved(ledger)
        with journal(tmp_path / "other.db", calls=5) as ledger:
            assert (await ledger.call(lm, ask(), "task", spec())).usd == 0.0

    run(course)


def test_estimates_are_cautious() -> None:
    assert estimate_tokens(({"role": "user", "content": "x" * 300},)) == 104
    assert estimate_tokens(({"role": "user", "content": "漢" * 300},)) >= 300, "a character of Chinese is a token"
    assert estimate_tokens(({"role": "user", "content": "half \ud800"},)) > 4
    called = {"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "x" * 3000}}]}
    assert estimate_tokens((called,)) > 1000


def test_tools_are_part_of_the_worst_case(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "x" * 600}}

    async def course() -> None:
        with journal(tmp_path / "run.db", tokens=150) as ledger:
            with pytest.raises(BudgetSpent, match="tokens"):
                await ledger.call(FakeLM(), ask("a", tools=(tool,)), "task", spec())
            await ledger.call(FakeLM(), ask("a"), "task", spec())

    run(course)


# Cancellation


@pytest.mark.parametrize("where", ["in flight", "waiting for a slot", "between attempts", "while it is recorded"])
def test_a_cancelled_call_leaves_no_reservation(where: str, tmp_path: Path) -> None:
    async def hang(request: Request) -> Any:
        if request.messages[0]["content"] == "cancelled" and where != "in flight":
            return LMError("server", "down") if where == "between attempts" else reply()
        await asyncio.sleep(3600)

    lm = FakeLM(hang, concurrency=1 if where == "waiting for a slot" else 8)

    async def course() -> tuple[int, int]:
        with journal(tmp_path / "run.db", calls=9, tokens=5000, usd=5.0) as ledger:
            ledger._pause = lambda attempt, error: 3600.0
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
            assert ledger._reserved.prompt_tokens == estimate_tokens(ask("other").messages)
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
            assert nothing_reserved(ledger) and not ledger._flying
            sent = ledger.sent.calls
        with journal(tmp_path / "run.db", calls=9) as ledger:
            ledger.open()
            assert ledger.sent.calls == sent == len(lm.requests), "all that left counts"
            return sent, ledger.unknown

    sent, unknown = run(course)
    assert (sent, unknown) == {
        "in flight": (2, 2), "waiting for a slot": (1, 1), "between attempts": (2, 1), "while it is recorded": (2, 1),
    }[where]  # fmt: skip


def test_a_call_that_is_cancelled_while_it_is_recorded_takes_no_other_along(tmp_path: Path) -> None:
    """Both answers wait for the same commit."""
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return reply()

    async def course() -> None:
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

    run(course)


def test_equal_requests_share_one_call_and_the_second_goes_on_if_the_first_is_cancelled(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return reply()

    lm = FakeLM(wait)

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            tasks = [asyncio.create_task(ledger.call(lm, ask(), "task", spec())) for _ in range(4)]
            await turns(5)
            assert len(lm.requests) == 1
            tasks[0].cancel()
            await turns(5)
            assert len(lm.requests) == 2, "one of the others took over, and only one"
            gate.set()
            settled = [await t for t in tasks[1:]]
            assert {s.response.text for s in settled if s.response} == {"yes"}
            assert sorted(s.cached for s in settled) == [False, True, True]
            assert ledger.spent.calls == 1 and ledger.spent.cached == 2 and ledger.sent.calls == 2

    run(course)


# Attempts


def scripted(*outcomes: Any) -> FakeLM:
    rest = list(outcomes)
    return FakeLM(lambda request: rest.pop(0) if rest else reply())


def failure(kind: str = "server", **more: Any) -> LMError:
    return LMError(kind, f"planted {kind}", **more)


def test_attempts_are_counted_and_recorded(tmp_path: Path) -> None:
    lm = scripted(failure(), failure("timeout"), reply(prompt=7, completion=3))

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            settled = await ledger.call(lm, ask(), "judge", spec(attempts=4))
            assert (settled.attempts, settled.cached, settled.error) == (3, False, None)
            assert (ledger.spent.calls, ledger.retries, ledger.sent.calls) == (3, 2, 3)
            assert (ledger.spent.prompt_tokens, ledger.by_role["judge"].completion_tokens) == (7, 3)
            rows = list(ledger.store.rows("select outcome, message from attempts order by id"))
            assert [tuple(r) for r in rows] == [("server", "planted server"), ("timeout", "planted timeout")]

    run(course)


@pytest.mark.parametrize(("kind", "requests"), [("server", 3), ("bad_body", 3), ("bad_request", 1), ("too_long", 1)])
def test_only_what_may_mend_is_tried_again_and_the_end_is_journalled(kind: str, requests: int, tmp_path: Path) -> None:
    lm = FakeLM(lambda request: failure(kind))

    async def course() -> None:
        for _ in range(2):  # again as another process: from the journal
            with journal(tmp_path / "run.db", calls=9) as ledger:
                settled = await ledger.call(lm, ask(), "task", spec(attempts=3))
                assert settled.response is None and settled.error is not None
                assert (settled.error.kind, str(settled.error)) == (kind, f"planted {kind}")
                assert settled.attempts == ledger.spent.calls == ledger.sent.calls == requests
                assert ledger.retries == requests - 1

    run(course)
    assert len(lm.requests) == requests


def test_a_bug_of_a_provider_is_one_failed_call(tmp_path: Path) -> None:
    async def course() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            settled = await ledger.call(scripted(KeyError("choices")), ask(), "task", spec())
            assert settled.error is not None and settled.error.kind == "provider"
            assert "KeyError" in str(settled.error) and nothing_reserved(ledger)

    run(course)


def test_a_deadline_ends_an_attempt_whatever_it_does(tmp_path: Path) -> None:
    async def drip(request: Request) -> Any:
        while True:
            await asyncio.sleep(0.005)

    lm = FakeLM(drip)

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            settled = await ledger.call(lm, ask(), "task", spec(attempts=2, timeout=0.05))
            assert settled.error is not None and settled.error.kind == "timeout"
            assert "0.05 s" in str(settled.error) and nothing_reserved(ledger)

    run(course)
    assert len(lm.requests) == 2 and lm.open == 0


def test_pauses_double_and_follow_the_server_up_to_a_limit(tmp_path: Path) -> None:
    with journal(tmp_path / "run.db", pauses=True) as ledger:
        for attempt, asked, least in [
            (1, None, 0.5), (2, None, 1.0), (4, None, 4.0), (1, 7.0, 7.0), (3, 0.0, 0.0), (1, -5.0, 0.5),
            (1, 86400.0, LONGEST_WAIT),
        ]:  # fmt: skip
            for _ in range(20):
                pause = ledger._pause(attempt, failure("rate_limit", retry_after=asked))
                assert least <= pause <= least * 1.25
        assert len({ledger._pause(1, None) for _ in range(9)}) > 1, "jitter keeps clients apart"


@pytest.mark.parametrize("again", ["same process", "another process"])
def test_attempts_that_the_budget_cut_short_are_counted_once(again: str, tmp_path: Path) -> None:
    """The retry did not fit under what search may use; later (for the proof) the same call is asked again."""
    lm = scripted(failure(), reply())

    async def second(ledger: Ledger) -> None:
        settled = await ledger.call(lm, ask(), "task", spec())
        assert settled.attempts == 2 and ledger.spent.calls == ledger.sent.calls == len(lm.requests) == 2
        assert ledger.retries == 1

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            ledger.hold(calls=8)
            with pytest.raises(BudgetSpent):
                await ledger.call(lm, ask(), "task", spec())
            assert ledger.spent.calls == 1
            if again == "same process":
                ledger.hold()
                await second(ledger)
        with journal(tmp_path / "run.db", calls=9) as ledger:
            if again == "another process":
                await second(ledger)
        with journal(tmp_path / "run.db", calls=9) as ledger:  # a replay counts the same
            await second(ledger)

    run(course)


def test_a_refused_key_is_not_journalled(tmp_path: Path) -> None:
    lm = scripted(failure("auth", status=401), failure("auth", status=403))

    async def course() -> None:
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

    run(course)


# The server is gone


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_dead_server_stops_the_run_after_a_bounded_number_of_requests(attempts: int, tmp_path: Path) -> None:
    alive, places = False, asyncio.Semaphore(1)

    async def answer(request: Request) -> Any:
        await turns(random.Random(str(request.messages)).randrange(4))
        return reply() if alive else failure("connection")

    lm = FakeLM(answer, concurrency=8)

    at_once = 16  # examples under way, as an evaluation has them

    async def one(ledger: Ledger, n: int) -> Any:
        async with places:
            return await ledger.call(lm, ask(str(n)), "task", spec(attempts=attempts))

    async def course() -> None:
        nonlocal alive, places
        places = asyncio.Semaphore(at_once)
        with journal(tmp_path / "run.db", calls=5000) as ledger:
            outcomes = await asyncio.gather(*(one(ledger, n) for n in range(200)), return_exceptions=True)
            dead = [o for o in outcomes if isinstance(o, ServerDead)]
            assert len(outcomes) - len(dead) == DEAD_AFTER - 1, "those before the end were told their own failure"
            assert len(lm.requests) <= (DEAD_AFTER + at_once) * attempts
            assert "planted connection" in str(dead[0]) and nothing_reserved(ledger)
            ledger.store.flush()
            assert ledger.store.row("select 1 from calls") is None, "what failed meanwhile is no lasting outcome"
            sent = len(lm.requests)
            with pytest.raises(ServerDead):
                await one(ledger, 999)
            assert len(lm.requests) == sent
        alive = True
        with journal(tmp_path / "run.db", calls=5000) as ledger:
            for n in range(200):
                settled = await one(ledger, n)
                assert settled.response is not None, "a resumed run asks again"
            assert ledger.spent.calls == ledger.sent.calls == len(lm.requests)

    run(course)


def test_an_answer_in_between_keeps_the_run_alive(tmp_path: Path) -> None:
    async def course() -> None:
        with journal(tmp_path / "run.db", calls=500) as ledger:
            for n in range(4 * DEAD_AFTER):
                lm = FakeLM(lambda request, n=n: failure("server") if n % DEAD_AFTER else reply())
                await ledger.call(lm, ask(str(n)), "task", spec(attempts=1))
            for n in range(2 * DEAD_AFTER):  # errors of the request say nothing about the server
                await ledger.call(FakeLM(lambda r: failure("bad_request")), ask(f"bad {n}"), "task", spec(attempts=1))
            row = ledger.store.row("select count(*) from calls")
            assert row is not None and row[0] == 6 * DEAD_AFTER

    run(course)


# The journal

_texts = st.text(max_size=12)
_requests = st.builds(
    Request,
    messages=st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": _texts}),
                      min_size=1, max_size=2).map(tuple),
    temperature=st.sampled_from([0.0, 0.5, 1.0]), max_tokens=st.integers(1, 3), top_p=st.sampled_from([0.5, 1.0]),
    stop=st.lists(_texts, max_size=1).map(tuple), replica=st.integers(0, 3), logprobs=st.booleans(),
    response_format=st.sampled_from([None, {"type": "json_object"}]), extra=st.dictionaries(_texts, _texts, max_size=2),
)  # fmt: skip


@given(one=_requests, two=_requests, identity=st.sampled_from(["a", "b"]))
def test_requests_share_a_key_only_if_they_are_equal(one: Request, two: Request, identity: str) -> None:
    assert (one == two and identity == "a") == (one.key("a") == two.key(identity))
    assert one.key("a") == dataclasses.replace(one, extra=dict(reversed(one.extra.items()))).key("a")


def test_replicas_are_calls_of_their_own(tmp_path: Path) -> None:
    lm = FakeLM(lambda request: reply(f"draw {request.replica}"))

    async def course() -> None:
        for _ in range(2):
            with journal(tmp_path / "run.db", calls=9) as ledger:
                texts = []
                for replica in (0, 1, 2, 1):
                    settled = await ledger.call(lm, ask(temperature=1.0, replica=replica), "task", spec())
                    assert settled.response is not None
                    texts.append(settled.response.text)
                assert texts == ["draw 0", "draw 1", "draw 2", "draw 1"]
                assert (ledger.spent.calls, ledger.spent.cached) == (3, 1)

    run(course)
    assert len(lm.requests) == 3


FULL = Response(
    "a 😀", "tool_calls", 11, 7, 0.25, tool_calls=({"id": "1", "function": {"name": "f", "arguments": "{}"}},),
    prompt_ids=(1, 2), token_ids=(3, 4), logprobs=(-0.5, -1.25), estimated=True,
)  # fmt: skip


@pytest.mark.parametrize(
    "response", [FULL, reply(), reply("", finish="refusal", usd=0.0), reply("cut", finish="length")]
)
def test_a_replay_gives_the_same_answer_and_the_same_bill(response: Response, tmp_path: Path) -> None:
    bills, lm = [], FakeLM(lambda request: response)

    async def course() -> None:
        for _ in range(3):
            told: list[Any] = []
            with journal(tmp_path / "run.db", calls=2) as ledger:
                ledger.on_call = told.append
                first = await ledger.call(lm, ask(), "judge", spec())
                second = await ledger.call(lm, ask(), "task", spec())
                assert (first.cached, second.cached) == (False, True)
                usd = response.usd if response.usd is not None else lm.price(response.prompt_tokens, 1)
                expected = dataclasses.replace(response, usd=usd)
                assert second.response == expected and first.response in (expected, response)
                assert first.usd == second.usd == usd and first.seconds == second.seconds
                bill = {k: v for k, v in ledger.summary().items() if k != "seconds"}
                bills.append(json.dumps(bill, sort_keys=True))
                assert [t.outcome for t in told] == [response.finish] * 2 and told[0].role == "judge"

    run(course)
    assert len(lm.requests) == 1 and len(set(bills)) == 1


def test_large_texts_are_kept_once_and_put_back(tmp_path: Path) -> None:
    large, small = "long " * LARGE, "x" * LARGE

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            for n in range(3):
                messages = ({"role": "system", "content": large}, {"role": "user", "content": f"{small[:-1]}{n}"})
                await ledger.call(FakeLM(), Request(messages), "task", spec())
            store = ledger.store
            assert [r["text"] for r in store.rows("select text from texts")] == [large]
            stored = [r["request"] for r in store.rows("select request from calls")]
            assert all(large not in text and small[:-1] in text for text in stored)
            told = call_texts(store, 1, 9)
            assert {m["messages"][0]["content"] for m in told} == {large}
            assert {m["messages"][1]["content"][-1] for m in told} == {"0", "1", "2"}
            assert all(t["answer"] == "yes" for t in told)

    run(course)


def test_effects_happen_once_and_failures_are_not_kept(tmp_path: Path) -> None:
    made: list[int] = []

    async def work() -> Any:
        made.append(len(made))
        if len(made) == 1:
            raise ValueError("the first time it fails")
        return {"n": len(made), "pair": (1, 2)}

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=1) as ledger:
            with pytest.raises(ValueError, match="first time"):
                await ledger.effect("tool", ["f", 1], work)
            assert await ledger.effect("tool", ["f", 1], work) == {"n": 2, "pair": [1, 2]}
        with journal(tmp_path / "run.db", calls=1) as ledger:
            assert await ledger.effect("tool", ["f", 1], work) == {"n": 2, "pair": [1, 2]}
            assert (await ledger.effect("tool", ["f", 2], work))["n"] == 3
            assert (await ledger.effect("code", ["f", 1], work))["n"] == 4
            ledger.stopping = ServerDead("gone")
            with pytest.raises(ServerDead):
                await ledger.effect("tool", ["f", 3], work)
            assert (await ledger.effect("tool", ["f", 1], work))["n"] == 2, "what is recorded needs nothing new"
            ledger.open()
            assert ledger.sent.calls == 0, "effects are no calls"

    run(course)
    assert len(made) == 4


# Kills

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.journal import FakeLM, ask, journal, reply, spec

async def answer(request):
    n = int(request.messages[0]["content"])
    if n < 3:
        return reply(prompt=5, completion=1)
    if len(lm.requests) == 7:
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(60)

lm = FakeLM(answer)

async def main():
    with journal(Path(sys.argv[1]), calls=20) as ledger:
        for n in range(3):
            await ledger.call(lm, ask(str(n)), "task", spec())
        await asyncio.gather(*(ledger.call(lm, ask(str(n)), "my judge", spec()) for n in range(3, 7)))

asyncio.run(main())
"""


def test_a_kill_leaves_requests_with_unknown_outcome_and_they_count(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, cwd=root)
    assert done.returncode == -9, done.stderr
    lm = FakeLM()

    async def course() -> None:
        with journal(path, calls=9) as ledger:
            for n in range(3):
                assert (await ledger.call(lm, ask(str(n)), "task", spec())).response is not None
            assert not lm.requests, "what was recorded is not paid again"
            assert ledger.unknown == 4 and ledger.sent.calls == 7 and ledger.spent.calls == 3
            estimate = estimate_tokens(ask("3").messages)
            assert ledger.sent.prompt_tokens == 3 * 5 + 4 * estimate
            assert ledger.sent.usd == pytest.approx(3 * lm.price(5, 1) + 4 * lm.price(estimate, 10))
            assert {r["role"] for r in ledger.store.rows("select role from attempts")} == {"my judge"}
            for n in (3, 4):
                await ledger.call(lm, ask(str(n)), "my judge", spec())
            with pytest.raises(BudgetSpent):  # 7 of the killed process and 2 of this one
                await ledger.call(lm, ask("5"), "my judge", spec())
            assert ledger.unknown == 4, "that they were paid again makes them no less unknown"
        with journal(path, calls=20) as ledger:
            ledger.open()
            assert ledger.sent.calls == 9 and ledger.unknown == 4

    run(course)
    assert not list(tmp_path.glob("*intents*"))


def test_an_intent_that_cannot_be_written_stops_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = FakeLM()

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=9, usd=1.0) as ledger:
            monkeypatch.setattr(ledger._intents, "path", tmp_path / "none" / "intents")
            with pytest.raises(StoreError, match="cannot write .*intents.*before is safe"):
                await ledger.call(lm, ask(), "task", spec())
            assert not lm.requests and nothing_reserved(ledger)

    run(course)

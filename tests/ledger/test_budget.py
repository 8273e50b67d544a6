"""The budget: no ceiling is passed, and nothing stays reserved."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from tests.helpers.journal import FakeLM, ask, journal, nothing_reserved, reply, run, spec, turns

from workbench.errors import BudgetSpent, LMError, SpecError
from workbench.ledger import Ledger, Spend
from workbench.lm import MAX_TOKENS, Request, Response, estimate_tokens

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


@pytest.mark.slow
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
    worst = Spend()  # what is under way, at its worst, and what may be billed of attempts that timed out
    passed: list[Spend] = []

    def fits(total: Spend) -> bool:
        limit = {what: value - (hold if what == "calls" else 0) for what, value in ceiling.items()}
        return all(getattr(total, what) <= value + 1e-9 for what, value in limit.items())

    def together() -> Spend:
        return Spend(
            used.calls,
            0,
            used.prompt_tokens + worst.prompt_tokens,
            used.completion_tokens + worst.completion_tokens,
            used.usd + worst.usd,
        )

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
        except LMError as error:
            kept = error.kind == "timeout"
            worst.prompt_tokens -= prompt * (not kept)
            worst.usd -= most * (not kept)
            worst.completion_tokens -= request.max_tokens * (not kept)
            raise
        except BaseException:  # a deadline or a cancellation: which one, only the ledger knows
            worst.prompt_tokens -= prompt
            worst.completion_tokens -= request.max_tokens
            worst.usd -= most
            raise
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

    async def main(ledger: Ledger) -> None:
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
        ledger.reserve_for_proof(calls=hold)
        run(lambda: main(ledger))
        assert nothing_reserved(ledger) and not ledger._flying
        assert not passed, (passed, ceiling)
        assert ledger.sent.calls == used.calls
        billed = ledger.store.row(
            "select coalesce(sum(prompt_tokens), 0), coalesce(sum(usd), 0) from attempts "
            "where outcome is null or outcome in ('timeout', 'broken', 'bad_body')"
        )
        assert billed is not None
        assert ledger.sent.prompt_tokens == used.prompt_tokens + billed[0]
        assert ledger.sent.completion_tokens == used.completion_tokens
        assert ledger.sent.usd == pytest.approx(used.usd + billed[1])


def test_the_ceiling_is_used_to_the_last_call(tmp_path: Path) -> None:
    lm = FakeLM()

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=5) as ledger:
            for n in range(5):
                await ledger.call(lm, ask(str(n)), "task", spec())
            with pytest.raises(BudgetSpent, match="budget reached: 5 calls; one more call could bring the total to 6"):
                await ledger.call(lm, ask("one more"), "task", spec())
            await ledger.call(lm, ask("3"), "task", spec())  # from the journal: costs nothing
            assert ledger.remaining() == 0 and ledger.spent.cached == 1

    run(main)
    assert len(lm.requests) == 5


def test_what_is_held_for_the_proof_is_not_for_search(tmp_path: Path) -> None:
    async def main() -> None:
        with journal(tmp_path / "run.db", calls=5, tokens=10_000) as ledger:
            ledger.reserve_for_proof(calls=3, tokens=9_900)
            assert ledger.remaining() == 2 and ledger.remaining("tokens") == 100
            assert ledger.remaining("usd") == float("inf")
            for n in range(2):
                await ledger.call(FakeLM(), ask(str(n)), "task", spec())
            with pytest.raises(BudgetSpent, match="5 calls, of which 3 are reserved for the proof; one more .* to 3"):
                await ledger.call(FakeLM(), ask("x"), "task", spec())
            ledger.reserve_for_proof()
            await ledger.call(FakeLM(), ask("x"), "task", spec())
            assert ledger.remaining() == 2

    run(main)


def test_the_last_call_under_way_holds_its_place(tmp_path: Path) -> None:
    """Two calls fit under the ceiling one after the other, by what they use; at the same time their worst does not."""
    gate, later = asyncio.Event(), FakeLM()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return reply(prompt=5, completion=1)

    async def main() -> None:
        with journal(tmp_path / "run.db", tokens=30) as ledger:
            first = asyncio.create_task(ledger.call(FakeLM(wait), ask("a"), "task", spec()))
            await turns(5)
            assert ledger.remaining("tokens") == 30, "optimizers see what is spent: a replay has nothing under way"
            second = asyncio.create_task(ledger.call(later, ask("b", max_tokens=20), "task", spec()))
            await turns(9)
            assert not second.done() and not later.requests
            gate.set()
            await first
            with pytest.raises(BudgetSpent, match="30 tokens; one more call could bring the total to 31"):
                await second
            await ledger.call(later, ask("b", max_tokens=19), "task", spec())
            assert nothing_reserved(ledger)

    run(main)


def test_minutes_count_earlier_processes(tmp_path: Path) -> None:
    async def main() -> None:
        with journal(tmp_path / "run.db", minutes=1) as ledger:
            ledger.earlier_seconds = 59.0
            await ledger.call(FakeLM(), ask("a"), "task", spec())
            assert 0 < ledger.remaining("minutes") <= 1 / 60
            ledger.earlier_seconds = 61.0
            with pytest.raises(BudgetSpent, match="minutes"):
                await ledger.call(FakeLM(), ask("b"), "task", spec())
            assert ledger.remaining("minutes") == 0

    run(main)


def test_what_is_held_for_the_proof_counts_in_each_kind_of_budget(tmp_path: Path) -> None:
    """Search sees the same whether it asks what is left or asks for a call."""
    budget = {"calls": 5, "tokens": 10_000, "usd": 1.0, "minutes": 10}
    with journal(tmp_path / "run.db", **budget) as ledger:
        for what, ceiling in budget.items():
            ledger.reserve_for_proof()
            assert ledger.remaining(what) == pytest.approx(ceiling, rel=0.01)
            ledger.reserve_for_proof(**{what: 0.75 * ceiling})
            assert ledger.remaining(what) == pytest.approx(0.25 * ceiling, rel=0.01)
            ledger.reserve_for_proof(**{what: ceiling})
            assert ledger.remaining(what) == 0
            with pytest.raises(BudgetSpent, match=what):
                run(lambda: ledger.call(FakeLM(), ask(), "task", spec()))


def test_counts_that_no_model_can_have_are_bounded(tmp_path: Path) -> None:
    """A server says how many tokens there were; the database and the bill take no more than a model can read."""
    with journal(tmp_path / "run.db") as ledger:
        for n, count in enumerate((MAX_TOKENS + 1, 10**30)):
            lm = FakeLM(lambda request, count=count: reply(prompt=count, completion=count))
            run(lambda lm=lm, n=n: ledger.call(lm, ask(str(n)), "task", spec()))
            assert ledger.spent.prompt_tokens == ledger.spent.completion_tokens == (n + 1) * MAX_TOKENS
    with journal(tmp_path / "run.db") as again:
        assert again.store.row("select max(prompt_tokens) as most from calls")["most"] == MAX_TOKENS


def test_the_largest_prompt_of_a_role_is_the_largest_in_any_order(tmp_path: Path) -> None:
    with journal(tmp_path / "run.db") as ledger:
        for role, prompts in (("task", (50, 5)), ("judge", (7, 70, 8))):
            for count in prompts:
                lm = FakeLM(lambda request, count=count: reply(prompt=count))
                run(lambda lm=lm, role=role, count=count: ledger.call(lm, ask(f"{role} {count}"), role, spec()))
        found = ledger.summary()["by_role"]
        assert {role: bill["largest_prompt"] for role, bill in found.items()} == {"task": 50, "judge": 70}


def test_dollars_need_a_price(tmp_path: Path) -> None:
    class Unpriced(FakeLM):
        def price(self, prompt_tokens: int, completion_tokens: int) -> None:
            return None

    async def main() -> None:
        lm = Unpriced()
        with journal(tmp_path / "run.db", usd=1.0) as ledger:
            with pytest.raises(SpecError, match="price of fake is not known\n.*price: {input"):
                await ledger.call(lm, ask(), "task", spec())
            assert not lm.requests and nothing_reserved(ledger)
        with journal(tmp_path / "other.db", calls=5) as ledger:
            assert (await ledger.call(lm, ask(), "task", spec())).usd == 0.0

    run(main)


def test_estimates_are_cautious() -> None:
    assert estimate_tokens(({"role": "user", "content": "x" * 300},)) == 104
    assert estimate_tokens(({"role": "user", "content": "漢" * 300},)) >= 300, "a character of Chinese is a token"
    assert estimate_tokens(({"role": "user", "content": "half \ud800"},)) > 4
    called = {"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "x" * 3000}}]}
    assert estimate_tokens((called,)) > 1000


def test_tools_are_part_of_the_worst_case(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "x" * 600}}

    async def main() -> None:
        with journal(tmp_path / "run.db", tokens=150) as ledger:
            with pytest.raises(BudgetSpent, match="tokens"):
                await ledger.call(FakeLM(), ask("a", tools=(tool,)), "task", spec())
            await ledger.call(FakeLM(), ask("a"), "task", spec())

    run(main)


@pytest.mark.parametrize("usd", [-1.0, float("nan"), float("inf")])
def test_dollars_that_nobody_can_owe_are_not_taken_from_a_provider(usd: float, tmp_path: Path) -> None:
    async def main() -> None:
        lm = FakeLM(lambda request: reply(usd=usd))
        lm.price = lambda prompt, completion: 0.5  # type: ignore[method-assign]
        with journal(tmp_path / "run.db", usd=1.0) as ledger:
            settled = await ledger.call(lm, ask(), "task", spec())
            assert (settled.usd, ledger.spent.usd) == (0.5, 0.5)

    run(main)

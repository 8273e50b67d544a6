"""A call that fits beside what is spent, but not beside the calls in flight, waits for them (M1)."""

from __future__ import annotations

import asyncio
import math
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st
from tests.helpers.journal import (
    FakeLM,
    ask,
    failure,
    journal,
    nothing_reserved,
    reply,
    run_without_waiting,
    skipped_seconds,
    spec,
)

from workbench.errors import BudgetSpent, LMError, ServerDead
from workbench.ledger import Ledger, Spend
from workbench.ledger.ceilings import Ceilings
from workbench.lm import Request, Response, estimate_tokens
from workbench.spec import BudgetSpec

AT_ONCE = (1, 16, 64)
TAKES = 10.0  # seconds a call: of a clock that is not waited for
PROMPT = estimate_tokens(ask("row 00").messages)


async def slowly(request: Request) -> Response:
    await asyncio.sleep(TAKES)
    return reply(prompt=PROMPT, completion=1)


@contextmanager
def timed(path: Path, **budget: Any) -> Iterator[Ledger]:
    """A ledger whose minutes are those that the loop skipped: what the machine takes does not count."""
    with journal(path, pause=None, **budget) as ledger, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "seconds", property(lambda self: skipped_seconds()))
        yield ledger


async def all_rows(ledger: Ledger, lm: FakeLM, n: int = 200) -> list[Any]:
    """The outcomes of n calls at once; TimeoutError if one of them waits for ever."""
    calls = (ledger.call(lm, ask(f"row {i:02}", max_tokens=500), "task", spec()) for i in range(n))
    return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 1e6)


def refused(outcomes: list[Any]) -> list[BudgetSpent]:
    assert not [
        outcome for outcome in outcomes if isinstance(outcome, BaseException) and type(outcome) is not BudgetSpent
    ]
    return [outcome for outcome in outcomes if isinstance(outcome, BudgetSpent)]


# As many calls as one after the other


@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("what", ["tokens", "usd"])
def test_M1_a_ceiling_that_pays_for_all_rows_pays_for_them_at_once(what: str, at_once: int, tmp_path: Path) -> None:
    """200 rows take 40% of the ceiling; 64 calls in flight would take 13 times the ceiling at worst."""
    lm = FakeLM(slowly, at_once)
    used = {"tokens": PROMPT + 1, "usd": lm.price(PROMPT, 1)}[what]
    worst = {"tokens": PROMPT + 500, "usd": lm.price(PROMPT, 500)}[what]
    ceiling = 200 * used + worst

    async def main() -> None:
        with timed(tmp_path / "run.db", **{what: ceiling}) as ledger:
            assert not refused(await all_rows(ledger, lm)) and len(lm.requests) == 200
            assert nothing_reserved(ledger) and lm.most == min(at_once, int(ceiling / worst))

    run_without_waiting(main)


@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("what", ["calls", "tokens", "usd", "minutes"])
def test_M1_a_run_ends_at_the_call_that_does_not_fit_beside_what_is_spent(
    what: str, at_once: int, tmp_path: Path
) -> None:
    """With any number of calls at once it gets as far as one call after the other, and says why it ended."""
    lm = FakeLM(slowly, at_once)
    used = {"calls": 1, "tokens": PROMPT + 1, "usd": lm.price(PROMPT, 1), "minutes": TAKES / 60}[what]
    worst = {"calls": 1, "tokens": PROMPT + 500, "usd": lm.price(PROMPT, 500), "minutes": 0}[what]
    ceiling = 30 * used + worst if what != "minutes" else 30.5 * used
    held = 10 * used

    async def main() -> None:
        with timed(tmp_path / "run.db", **{what: ceiling}) as ledger:
            ledger.reserve_for_proof(**{what: held})
            ended = refused(await all_rows(ledger, lm, 100 if what != "minutes" else 30 * at_once))
            spent = ledger.seconds / 60 if what == "minutes" else getattr(ledger.sent, what)
            assert ended and all(error.what == what and error.held == held for error in ended)
            assert spent <= ceiling - held + (used if what == "minutes" else 0), "no call began later"
            assert spent + worst + used > ceiling - held, "the last call that fitted was sent"
            assert all(ceiling - held < error.needed <= spent + worst + 1e-9 for error in ended)
            ledger.reserve_for_proof()
            asked = len(lm.requests)
            await ledger.call(lm, ask("of the proof", max_tokens=500), "task", spec())
            assert len(lm.requests) == asked + 1

    run_without_waiting(main)


def test_M1_calls_wait_in_each_of_several_event_loops(tmp_path: Path) -> None:
    """Commands that ask in several steps run a loop for each, with one ledger."""
    with journal(tmp_path / "run.db", tokens=2000) as ledger:
        for step in range(3):
            lm = FakeLM(slowly, 16)
            calls = [ask(f"row {step}{n}", max_tokens=500) for n in range(9)]

            async def main(lm: FakeLM = lm, calls: list[Request] = calls) -> None:
                await asyncio.gather(*(ledger.call(lm, request, "task", spec()) for request in calls))

            run_without_waiting(main)
            assert lm.most == 3 and len(lm.requests) == 9


def test_M1_a_call_whose_worst_case_alone_is_too_much_is_refused_at_once(tmp_path: Path) -> None:
    lm = FakeLM(slowly, 16)

    async def main() -> None:
        with timed(tmp_path / "run.db", tokens=300) as ledger:
            assert len(refused(await all_rows(ledger, lm, 5))) == 5
            assert not lm.requests and ledger.seconds == 0

    run_without_waiting(main)


# Who waits


def outcome_of(kind: str) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Any:
        await asyncio.sleep(3600 if kind in ("timeout", "cancelled") else 1)
        return reply() if kind in ("answer", "stop") else failure(kind)

    return answer


WOKEN = {"answer": None, "bad_request": None, "server": None, "rate_limit": None, "timeout": BudgetSpent} | {
    "cancelled": BudgetSpent,  # as after a timeout, the worst case may be billed
    "stop": ServerDead,
}


@pytest.mark.parametrize("end", WOKEN)
def test_M1_who_waits_is_woken_however_the_call_in_flight_ends(end: str, tmp_path: Path) -> None:
    first, second = FakeLM(outcome_of(end), 1), FakeLM()
    second.identity = "second"

    async def main() -> None:
        with timed(tmp_path / "run.db", tokens=2 * (PROMPT + 500) - 50) as ledger:
            once = spec(attempts=1, timeout=10 if end == "timeout" else 1e4)
            before = asyncio.create_task(ledger.call(first, ask("row 01", max_tokens=500), "task", once))
            await asyncio.sleep(0.1)
            after = asyncio.create_task(ledger.call(second, ask("row 02", max_tokens=500), "task", spec()))
            await asyncio.sleep(0.1)
            assert not second.requests and not after.done()
            if end == "cancelled":
                before.cancel()
            if end == "stop":
                ledger.stopping = ServerDead("stopped")
            await asyncio.wait_for(asyncio.wait([before, after]), 1e6)
            assert type(after.exception()) is (WOKEN[end] or type(None))
            assert len(second.requests) == (WOKEN[end] is None) and nothing_reserved(ledger)
            assert before.cancelled() or before.exception() is None

    run_without_waiting(main)


def test_M1_who_waits_for_room_keeps_to_a_pause_that_came_meanwhile(tmp_path: Path) -> None:
    """And if the run ends in that pause, or the key is rejected, it sends nothing."""
    sent: list[float] = []

    async def answer(request: Request) -> Any:
        sent.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        return failure("rate_limit", retry_after=60) if len(sent) == 1 else reply()

    async def main() -> None:
        lm = FakeLM(answer, 2)
        with timed(tmp_path / "run.db", tokens=PROMPT + 600) as ledger:
            outcomes = await all_rows(ledger, lm, 2)
            assert not refused(outcomes) and len(sent) == 3
            assert sent[1] - sent[0] >= 61, "the second waited for room, and then as long as the server asked for"
            assert nothing_reserved(ledger)

    run_without_waiting(main)


@pytest.mark.parametrize("end", ["stopped", "minutes", "auth"])
def test_M1_who_waited_sends_nothing_once_the_run_has_ended(end: str, tmp_path: Path) -> None:
    async def answer(request: Request) -> Any:
        await asyncio.sleep(1)
        return failure("auth") if end == "auth" else failure("rate_limit", retry_after=60)

    async def main() -> None:
        lm = FakeLM(answer, 2)
        with timed(
            tmp_path / "run.db", tokens=PROMPT + 600, **({"minutes": 0.5} if end == "minutes" else {})
        ) as ledger:
            both = asyncio.create_task(all_rows(ledger, lm, 2))
            await asyncio.sleep(10)
            if end == "stopped":
                ledger.stopping = ServerDead("stopped")
            kinds = {"stopped": ServerDead, "minutes": BudgetSpent, "auth": LMError}
            assert [type(outcome) for outcome in await both] == [kinds[end]] * 2
            assert len(lm.requests) == 1 and nothing_reserved(ledger)

    run_without_waiting(main)


def test_M1_a_dear_call_is_not_starved_by_cheap_ones(tmp_path: Path) -> None:
    """It needs all the room there is; cheap calls that came later would fit beside those in flight, and wait for it."""
    order: list[str] = []

    async def answer(request: Request) -> Any:
        order.append(str(request.messages[0]["content"]))
        await asyncio.sleep(1)
        return reply(prompt=0, completion=0)

    async def main() -> None:
        lm = FakeLM(answer, 64)
        with timed(tmp_path / "run.db", tokens=PROMPT + 500) as ledger:
            asked = [f"row {n:02}" for n in range(40)]
            calls = (
                ledger.call(lm, ask(text, max_tokens=500 if text == "row 05" else 10), "task", spec()) for text in asked
            )
            assert not refused(await asyncio.gather(*calls, return_exceptions=True))
            assert order == asked

    run_without_waiting(main)


def test_M1_a_settled_call_leaves_nothing_reserved_beside_those_still_in_flight(tmp_path: Path) -> None:
    async def answer(request: Request) -> Any:
        await asyncio.sleep(1000 if "long" in str(request.messages) else 1)
        return reply()

    async def main() -> None:
        lm = FakeLM(answer, 64)
        with timed(tmp_path / "run.db", tokens=9000, usd=9.0, calls=99) as ledger:
            long = asyncio.create_task(ledger.call(lm, ask("long"), "task", spec(timeout=2000)))
            await asyncio.sleep(0.1)
            alone = vars(ledger.ceilings.reserved).copy()
            assert alone["usd"] > 0 and alone["calls"] == 0
            await asyncio.gather(*(ledger.call(lm, ask(f"row {n}"), "task", spec()) for n in range(40)))
            assert vars(ledger.ceilings.reserved) == pytest.approx(alone) and not long.done()
            await long

    run_without_waiting(main)


@dataclass
class Alone:
    """What ceilings know of a run that has spent nothing."""

    budget: BudgetSpec
    spent: Spend = field(default_factory=Spend)
    sent: Spend = field(default_factory=Spend)
    stopping: BaseException | None = None
    seconds: float = 0.0


def test_M1_no_rest_of_rounding_is_waited_for() -> None:
    """0.1 + 0.2 - 0.1 - 0.2 dollars are not 0; a call that takes the ceiling to its last bit would wait without end."""
    worst = Spend(1, usd=0.05)
    most = worst.usd - 1e-12
    while most + 1e-12 != worst.usd:  # the ceilings allow for so much
        most = math.nextafter(most, 0.0 if most + 1e-12 > worst.usd else 1.0)
    account = Alone(BudgetSpec.model_validate({"usd": 1.0}))
    ceilings = Ceilings(account)

    async def main() -> None:
        held = [await ceilings.reserve(lambda usd=usd: Spend(1, usd=usd)) for usd in (0.1, 0.2)]
        assert ceilings.reserved.calls == 2
        ceilings.give_back(held[0])
        assert ceilings.reserved.calls == 1 and ceilings.reserved.usd == pytest.approx(0.2)
        ceilings.give_back(held[1])
        account.budget = BudgetSpec.model_validate({"usd": most})
        await asyncio.wait_for(ceilings.reserve(lambda: worst), 1e6)

    run_without_waiting(main)


# Any workload


def price(prompt: int, completion: int) -> float:
    return FakeLM().price(prompt, completion) or 0.0


@dataclass
class World:
    """Random calls of two models, and what they use, counted here and not by the ledger."""

    seed: int
    at_once: int
    ceiling: dict[str, float]
    hold: float
    used: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("calls", "tokens", "usd"), 0.0))
    flying: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("calls", "tokens", "usd"), 0.0))
    wrong: list[str] = field(default_factory=list[str])
    served: list[int] = field(default_factory=list[int])

    def limit(self, what: str) -> float:
        return self.ceiling[what] * (1 - self.hold)

    def worst(self, request: Request) -> dict[str, float]:
        prompt = estimate_tokens(request.messages)
        return {"calls": 0, "tokens": prompt + request.max_tokens, "usd": price(prompt, request.max_tokens)}

    def add(self, to: dict[str, float], amounts: dict[str, float], sign: int = 1) -> None:
        for what, amount in amounts.items():
            to[what] += sign * amount

    async def answer(self, request: Request) -> Any:
        """An answer, a failure or none, after a while."""
        draw = random.Random(f"{self.seed} {request.messages} {self.used['calls']}")
        worst = self.worst(request)
        self.used["calls"] += 1
        self.add(self.flying, worst)
        if any(self.used[w] + self.flying[w] > self.limit(w) + 1e-9 for w in self.ceiling if w in self.used):
            self.wrong.append(f"over the ceiling: {self.used} and {self.flying} in flight")
        billed = True  # of what is cancelled or out of time nobody knows the outcome
        try:
            kind = draw.choice(("answer",) * 6 + ("server", "rate_limit", "broken", "hang", "bad_request"))
            await asyncio.sleep(draw.expovariate(1.0) if kind != "hang" else 3600)
            billed = kind == "broken"
            if kind != "answer":
                return failure(kind, retry_after=draw.choice((None, 5.0)) if kind == "rate_limit" else None)
            prompt, completion = estimate_tokens(request.messages), int(draw.random() ** 3 * request.max_tokens)
            self.add(self.used, {"tokens": prompt + completion, "usd": price(prompt, completion)})
            return reply(prompt=prompt, completion=completion)
        finally:
            self.add(self.flying, worst, -1)
            self.add(self.used, worst, billed)

    async def call(self, ledger: Ledger, n: int, models: list[FakeLM]) -> None:
        draw = random.Random(f"{self.seed} {n}")
        await asyncio.sleep(draw.random() * 20)
        most = draw.choice((1, 10, 100, 400))
        request = ask(f"call {n} " + "w" * draw.randrange(60), max_tokens=most)
        await ledger.call(draw.choice(models), request, "task", spec(attempts=draw.choice((1, 3)), timeout=20))

    def watch(self, ledger: Ledger) -> None:
        """Note who is served, and what is refused although it fits beside what is spent."""
        reserve, arrived = ledger.ceilings.reserve, iter(range(10**9))

        async def watched(worst: Callable[[], Spend]) -> Spend:
            number = next(arrived)
            try:
                held = await reserve(worst)
            except BudgetSpent as error:
                if error.what != "minutes":
                    total = self.used[error.what] + getattr(worst(), error.what)
                    if total <= self.limit(error.what) or abs(total - error.needed) > 1e-6:
                        self.wrong.append(f"{error}, but {self.used} are spent")
                raise
            self.served.append(number)
            return held

        ledger.ceilings.reserve = watched  # type: ignore[method-assign]

    async def main(self, path: Path) -> None:
        models = [FakeLM(self.answer, self.at_once), FakeLM(self.answer, max(1, self.at_once // 4))]
        models[1].identity = "other"
        draw = random.Random(self.seed)
        with timed(path, **self.ceiling) as ledger:
            ledger.reserve_for_proof(**{what: self.hold * ceiling for what, ceiling in self.ceiling.items()})
            self.watch(ledger)
            tasks = [asyncio.create_task(self.call(ledger, n, models)) for n in range(60)]
            for task in draw.sample(tasks, 6):
                asyncio.get_running_loop().call_later(draw.random() * 40, task.cancel)
            outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 1e6)
            ends = (type(None), BudgetSpent, asyncio.CancelledError)
            assert not [outcome for outcome in outcomes if type(outcome) not in ends]
            assert nothing_reserved(ledger) and not ledger.ceilings._turn.busy
            assert ledger.sent.calls == self.used["calls"] and ledger.sent.tokens == self.used["tokens"]
        assert not self.wrong, self.wrong[0]
        assert self.served == sorted(self.served), "first come, first served"


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    seed=st.integers(0, 10**6),
    at_once=st.sampled_from(AT_ONCE),
    ceiling=st.fixed_dictionaries(
        {},
        optional={
            "calls": st.integers(1, 90),
            "tokens": st.integers(50, 9000),
            "usd": st.floats(0.1, 15),
            "minutes": st.floats(0.1, 4),
        },
    ),
    hold=st.sampled_from((0.0, 0.3)),
)
def test_M1_no_workload_passes_a_ceiling_ends_too_early_or_leaves_one_waiting(
    seed: int, at_once: int, ceiling: dict[str, float], hold: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_without_waiting(lambda: World(seed, at_once, ceiling, hold).main(Path(folder) / "run.db"))

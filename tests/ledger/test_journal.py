"""The journal: nothing recorded is paid again, and a kill loses only what was under way."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.helpers.journal import FakeLM, ask, journal, nothing_reserved, reply, run, spec
from tests.helpers.sqlite import connect

from workbench.errors import BudgetSpent, ServerDead, StoreError
from workbench.evaluation import read_calls
from workbench.lm import Request, Response, estimate_tokens
from workbench.store import LARGE_TEXT, Journal

# The journal

_texts = st.text(max_size=12)
_requests = st.builds(
    Request,
    messages=st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": _texts}), min_size=1, max_size=2
    ).map(tuple),
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
    max_tokens=st.integers(1, 3),
    top_p=st.sampled_from([0.5, 1.0]),
    stop=st.lists(_texts, max_size=1).map(tuple),
    replica=st.integers(0, 3),
    logprobs=st.booleans(),
    response_format=st.sampled_from([None, {"type": "json_object"}]),
    extra=st.dictionaries(_texts, _texts, max_size=2),
)


@given(one=_requests, two=_requests, identity=st.sampled_from(["a", "b"]))
def test_requests_share_a_key_only_if_they_are_equal(one: Request, two: Request, identity: str) -> None:
    assert (one == two and identity == "a") == (one.key("a") == two.key(identity))
    assert one.key("a") == dataclasses.replace(one, extra=dict(reversed(one.extra.items()))).key("a")


@pytest.mark.parametrize(
    "changed",
    [
        {"messages": ({"role": "user", "content": "other"},)},
        {"temperature": 0.5},
        {"max_tokens": 9},
        {"top_p": 0.5},
        {"stop": (";",)},
        {"replica": 1},
        {"tools": ({"name": "search"},)},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True},
        {"extra": {"seed": 1}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_whatever_is_changed_in_a_request_makes_another_key(changed: dict[str, Any]) -> None:
    assert dataclasses.replace(ask(), **changed).key("a") != ask().key("a")


def test_an_answer_is_seen_only_once_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a kill could lose an answer that the search has already used, and that is paid again."""

    async def main() -> None:
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(Journal, "add_call", lambda self, *given, **named: committed)
        with journal(tmp_path / "run.db", calls=9) as ledger:
            call = asyncio.create_task(ledger.call(FakeLM(), ask(), "task", spec()))
            await asyncio.sleep(0.05)
            assert not call.done()
            committed.set_result(None)
            assert (await call).response is not None

    run(main)


def test_replicas_are_calls_of_their_own(tmp_path: Path) -> None:
    lm = FakeLM(lambda request: reply(f"draw {request.replica}"))

    async def main() -> None:
        for _ in range(2):
            with journal(tmp_path / "run.db", calls=9) as ledger:
                texts = []
                for replica in (0, 1, 2, 1):
                    settled = await ledger.call(lm, ask(temperature=1.0, replica=replica), "task", spec())
                    assert settled.response is not None
                    texts.append(settled.response.text)
                assert texts == ["draw 0", "draw 1", "draw 2", "draw 1"]
                assert (ledger.spent.calls, ledger.spent.cached) == (3, 1)

    run(main)
    assert len(lm.requests) == 3


def test_a_model_that_remembers_is_told_of_what_the_journal_answers(tmp_path: Path) -> None:
    class Remembers(FakeLM):
        told: list[tuple[int, str]] = []

        def recall(self, request: Request, response: Response) -> None:
            self.told.append((request.replica, response.text))

    lm = Remembers(lambda request: reply(f"draw {request.replica}"))

    async def main() -> None:
        for _ in range(2):  # the second time as another process would
            with journal(tmp_path / "run.db", calls=9) as ledger:
                for replica in (0, 1):
                    await ledger.call(lm, ask(temperature=1.0, replica=replica), "task", spec())

    run(main)
    assert len(lm.requests) == 2 and lm.told == [(0, "draw 0"), (1, "draw 1")]


FULL = Response(
    "a 😀",
    "tool_calls",
    11,
    7,
    0.25,
    tool_calls=({"id": "1", "function": {"name": "f", "arguments": "{}"}},),
    prompt_ids=(1, 2),
    token_ids=(3, 4),
    logprobs=(-0.5, -1.25),
    estimated=True,
)


@pytest.mark.parametrize(
    "response", [FULL, reply(), reply("", finish="refusal", usd=0.0), reply("cut", finish="length")]
)
def test_a_replay_gives_the_same_answer_and_the_same_bill(response: Response, tmp_path: Path) -> None:
    bills, lm = [], FakeLM(lambda request: response)

    async def main() -> None:
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

    run(main)
    assert len(lm.requests) == 1 and len(set(bills)) == 1


def test_large_texts_are_kept_once_and_put_back(tmp_path: Path) -> None:
    large, small = "long " * LARGE_TEXT, "x" * LARGE_TEXT

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            for n in range(3):
                messages = ({"role": "system", "content": large}, {"role": "user", "content": f"{small[:-1]}{n}"})
                await ledger.call(FakeLM(), Request(messages), "task", spec())
            store = ledger.store
            assert [r["text"] for r in store.rows("select text from texts")] == [large]
            stored = [r["request"] for r in store.rows("select request from calls")]
            assert all(large not in text and small[:-1] in text for text in stored)
            told = read_calls(store, 1, 9)
            assert {m["messages"][0]["content"] for m in told} == {large}
            assert {m["messages"][1]["content"][-1] for m in told} == {"0", "1", "2"}
            assert all(t["answer"] == "yes" for t in told)

    run(main)


def test_effects_happen_once_and_failures_are_not_kept(tmp_path: Path) -> None:
    made: list[int] = []

    async def work() -> Any:
        made.append(len(made))
        if len(made) == 1:
            raise ValueError("the first time it fails")
        return {"n": len(made), "pair": (1, 2)}

    async def main() -> None:
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

    run(main)
    assert len(made) == 4


# Kills

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.helpers.journal import FakeLM, ask, journal, reply, spec

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


@pytest.mark.fault("killed")
def test_a_kill_leaves_requests_with_unknown_outcome_and_they_count(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, cwd=root)
    assert done.returncode == -9, done.stderr
    lm = FakeLM()

    async def main() -> None:
        with journal(path, calls=9) as ledger:
            for n in range(3):
                assert (await ledger.call(lm, ask(str(n)), "task", spec())).response is not None
            assert not lm.requests, "what was recorded is not paid again"
            assert ledger.bill.unknown == 4 and ledger.sent.calls == 7 and ledger.spent.calls == 3
            estimate = estimate_tokens(ask("3").messages)
            assert estimate < 5, "it was too low for those before, and is raised by that"
            worst = 5 + ask("3").max_tokens
            assert ledger.sent.prompt_tokens == 3 * 5 + 4 * worst
            assert ledger.sent.usd == pytest.approx(3 * lm.price(5, 1) + 4 * lm.price(worst - 10, 10))
            assert {r["role"] for r in ledger.store.rows("select role from attempts")} == {"my judge"}
            for n in (3, 4):
                await ledger.call(lm, ask(str(n)), "my judge", spec())
            with pytest.raises(BudgetSpent):  # 7 of the killed process and 2 of this one
                await ledger.call(lm, ask("5"), "my judge", spec())
            assert ledger.bill.unknown == 4, "that they were paid again makes them no less unknown"
        with journal(path, calls=20) as ledger:
            ledger.open()
            assert ledger.sent.calls == 9 and ledger.bill.unknown == 4

    run(main)


def test_a_request_that_cannot_be_recorded_is_not_sent(tmp_path: Path) -> None:
    lm = FakeLM()

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9, usd=1.0) as ledger:
            ledger.store.execute("create trigger full before insert on attempts begin select raise(abort, 'full'); end")
            with pytest.raises(StoreError, match="cannot write .*full.*before is safe"):
                await ledger.call(lm, ask(), "task", spec())
            assert not lm.requests and nothing_reserved(ledger) and ledger.sent.calls == 0

    run(main)


def test_a_request_is_committed_before_it_is_sent_and_replaced_by_its_call_in_one_commit(tmp_path: Path) -> None:
    """Another process sees the request or the call, never both, nor neither."""
    seen = list[tuple[int, ...]]()

    def look(statement: str = "") -> None:
        with closing(connect(tmp_path / "run.db")) as other:
            counts = tuple(other.execute(f"select count(*) from {t}").fetchone()[0] for t in ("attempts", "calls"))
        if counts not in seen[-1:]:
            seen.append(counts)

    class Looking(FakeLM):
        async def complete(self, request: Request) -> Response:
            look()
            assert seen[-1][0] == 1
            return await super().complete(request)

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            ledger.store.conn.set_trace_callback(look)
            for n in range(3):
                await ledger.call(Looking(), ask(str(n)), "task", spec())
            look()

    run(main)
    assert seen == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]


def test_a_call_that_is_cancelled_before_it_is_sent_leaves_no_request(tmp_path: Path) -> None:
    lm = FakeLM()

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=9) as ledger:
            call = asyncio.ensure_future(ledger.call(lm, ask(), "task", spec()))
            while not ledger.ceilings.in_flight:
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            ledger.store.flush()
            assert call.cancelled() and not lm.requests and ledger.bill.unknown == 0 and ledger.sent.calls == 0

    run(main)

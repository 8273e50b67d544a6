"""Answers of earlier runs are taken over on request, and only those that are whole and of the same model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.journal import FakeLM, ask, failure, pausing, reply, run, spec

from workbench.errors import BudgetSpent
from workbench.ledger import CallInfo, Ledger, Settled
from workbench.lm import Request, Response
from workbench.spec import BudgetSpec
from workbench.store import Store, add_run


@contextmanager
def ledger_of(
    path: Path, number: int, *, reuse: bool = True, searching: bool = False, source: int | None = None, **budget: Any
) -> Iterator[Any]:
    """The ledger of a run of a database, which is added if it is not there."""
    store = Store(path)
    try:
        if store.row("select 1 from runs where id = ?", number) is None:
            assert add_run(store, run=f"r{number}", name="n", status="", spec="", options="{}") == number
        ledger = Ledger(
            store, number, BudgetSpec.model_validate(budget), reuse=reuse, searching=searching, source=source
        )
        with pausing(0.0):
            yield ledger
    finally:
        store.close()


def settle(ledger: Ledger, lm: Any, *requests: Request, role: str = "task") -> list[Settled]:
    async def main() -> list[Settled]:
        return await asyncio.gather(*(ledger.call(lm, request, role, spec()) for request in requests))

    return run(main)


DRAWS = tuple(ask("toss", temperature=1.0, replica=k) for k in range(3))


def paid_once(path: Path) -> None:
    """A first run, whose draws answer with their number."""
    with ledger_of(path, 1) as ledger:
        settle(ledger, FakeLM(lambda request: reply(f"draw {request.replica}", prompt=7, completion=3)), *DRAWS)


def test_friction_14_each_draw_of_a_later_run_takes_the_same_draw_of_the_earlier_one(tmp_path: Path) -> None:
    paid_once(tmp_path / "run.db")
    told = list[CallInfo]()
    with ledger_of(tmp_path / "run.db", 2) as ledger:
        ledger.on_call, lm = told.append, FakeLM()
        found = settle(ledger, lm, *reversed(DRAWS), role="judge")
        assert not lm.requests and [s.response.text for s in found if s.response] == ["draw 2", "draw 1", "draw 0"]
        bill = ledger.summary()
        assert (bill["calls"], bill["usd"], bill["prompt_tokens"]) == (0, 0.0, 0) and not bill["by_role"]
        assert bill["reused"] == {
            "calls": 3, "prompt_tokens": 21, "completion_tokens": 9, "usd": pytest.approx(3 * 0.013)
        }  # fmt: skip
        assert [(call.reused, call.role) for call in told] == [(True, "judge")] * 3


def test_friction_14_without_the_setting_a_later_run_pays_again(tmp_path: Path) -> None:
    paid_once(tmp_path / "run.db")
    with ledger_of(tmp_path / "run.db", 2, reuse=False) as ledger:
        settle(ledger, lm := FakeLM(), *DRAWS, ask("certain"))
        assert len(lm.requests) == 4 and ledger.summary()["reused"]["calls"] == 0


def test_what_was_taken_over_is_replayed_without_the_earlier_run(tmp_path: Path) -> None:
    """It is in the journal of the later run, with its cost and its time."""
    paid_once(tmp_path / "run.db")
    with ledger_of(tmp_path / "run.db", 2) as ledger:
        first = settle(ledger, FakeLM(), *DRAWS)
        ledger.store.execute("delete from calls where run_id = 1")
    for reuse in (True, False):
        with ledger_of(tmp_path / "run.db", 2, reuse=reuse) as ledger:
            ledger._resumed = True
            ledger._open = True
            again = settle(ledger, lm := FakeLM(), *DRAWS)
            assert not lm.requests and again == first
            assert ledger.summary()["reused"]["calls"] == 3 and ledger.summary()["calls"] == 0
            assert ledger.bill.sent().calls == 0
    with ledger_of(tmp_path / "run.db", 2) as ledger:
        assert ledger.resumed, "also if the earlier process paid for nothing"
    with ledger_of(tmp_path / "run.db", 2, reuse=False) as ledger:
        assert settle(ledger, lm := FakeLM(), *DRAWS) == first and not lm.requests, "also without the setting"


def test_only_paid_calls_count_against_a_ceiling_outside_a_search(tmp_path: Path) -> None:
    paid_once(tmp_path / "run.db")
    with ledger_of(tmp_path / "run.db", 2, calls=1) as ledger:
        settle(ledger, lm := FakeLM(), *DRAWS, ask("new"))
        assert len(lm.requests) == 1 == ledger.spent.calls
        with pytest.raises(BudgetSpent):
            settle(ledger, lm, ask("newer"))


def test_a_search_counts_what_it_takes_over_as_the_run_that_paid_for_it(tmp_path: Path) -> None:
    paid_once(tmp_path / "run.db")
    with ledger_of(tmp_path / "run.db", 2, searching=True, calls=3) as ledger:
        settle(ledger, lm := FakeLM(), *DRAWS)
        assert ledger.remaining("calls") == 0 and ledger.summary()["calls"] == 0
        with pytest.raises(BudgetSpent):
            settle(ledger, lm, ask("new"))
        assert not lm.requests


def test_failures_are_asked_again_in_a_later_run(tmp_path: Path) -> None:
    with ledger_of(tmp_path / "run.db", 1) as ledger:
        assert settle(ledger, FakeLM(lambda request: failure("bad_request")), ask())[0].error
    with ledger_of(tmp_path / "run.db", 2) as ledger:
        assert settle(ledger, lm := FakeLM(), ask())[0].response and len(lm.requests) == 1


CALL = {"id": "1", "function": {"name": "look", "arguments": '{"city": "Par'}}
ANSWERS = {
    "empty": (reply("", finish="empty"), False),
    "blank": (reply(" \n", finish="stop"), False),
    "thoughts used up max_tokens": (reply("", finish="length"), False),
    "thoughts alone": (reply("<think>hm</think>\n", finish="stop"), False),
    "refusal": (reply("I will not.", finish="refusal"), False),
    "refusal without a text": (reply("", finish="refusal"), False),
    "cut": (reply("It is about the bil", finish="length"), True),  # whether that is enough, the node knows
    "tool calls": (reply("", finish="tool_calls", tool_calls=(CALL,)), True),
    "tool calls, told as stop": (reply("", finish="stop", tool_calls=(CALL,)), True),
    "an answer": (reply("0"), True),
}


def said(response: Response | None) -> tuple[Any, ...]:
    assert response is not None
    return response.text, response.finish, response.tool_calls


@pytest.mark.parametrize("case", ANSWERS)
def test_M5_an_answer_that_is_a_failure_is_asked_for_again(case: str, tmp_path: Path) -> None:
    """An older good one would be taken; a resumed run, and one that repeats another, have what they had."""
    answer, kept = ANSWERS[case]
    path = tmp_path / "run.db"
    with ledger_of(path, 1) as ledger:
        settle(ledger, FakeLM(lambda request: answer), ask())
    with ledger_of(path, 2) as ledger:
        found = settle(ledger, lm := FakeLM(lambda request: reply("later")), ask())[0].response
        assert len(lm.requests) == (not kept) and said(found) == said(answer if kept else reply("later"))
        assert ledger.summary()["reused"]["calls"] == kept
    with ledger_of(path, 3, reuse=False) as ledger:
        settle(ledger, FakeLM(lambda request: answer), ask())
    with ledger_of(path, 4) as ledger:
        found = settle(ledger, lm := FakeLM(), ask())[0].response
        assert not lm.requests and said(found) == said(answer if kept else reply("later"))
    with ledger_of(path, 1) as ledger:
        assert said(settle(ledger, lm := FakeLM(), ask())[0].response) == said(answer) and not lm.requests
    with ledger_of(path, 5, source=1) as ledger:
        assert said(settle(ledger, lm := FakeLM(), ask())[0].response) == said(answer) and not lm.requests


@pytest.mark.parametrize(
    "damage",
    [
        "response = replace(response, 'draw', 'drew')",
        "checksum = null",
        "usd = -1",
        "usd = 9e999",
        "prompt_tokens = -5",
        "seconds = 'long'",
        "attempts = 'x'",
    ],
)
def test_damaged_rows_are_not_taken_over(damage: str, tmp_path: Path) -> None:
    paid_once(tmp_path / "run.db")
    with ledger_of(tmp_path / "run.db", 2) as ledger:
        ledger.store.execute(f"update calls set {damage} where run_id = 1")
        settle(ledger, lm := FakeLM(), *DRAWS)
        assert len(lm.requests) == 3


def test_an_older_whole_answer_stands_in_for_a_damaged_one(tmp_path: Path) -> None:
    paid_once(tmp_path / "run.db")
    with ledger_of(tmp_path / "run.db", 2, reuse=False) as ledger:
        settle(ledger, FakeLM(), *DRAWS)
        ledger.store.execute("update calls set usd = -1 where run_id = 2")
    with ledger_of(tmp_path / "run.db", 3) as ledger:
        found = settle(ledger, lm := FakeLM(), *DRAWS)
        assert not lm.requests and found[1].response and found[1].response.text == "draw 1"


def test_a_model_whose_identity_does_not_name_its_weights_is_asked_again(tmp_path: Path) -> None:
    paid_once(tmp_path / "run.db")
    with ledger_of(tmp_path / "run.db", 2) as ledger:
        lm: Any = FakeLM()
        lm.reusable = False
        settle(ledger, lm, *DRAWS)
        assert len(lm.requests) == 3


def test_a_rollout_for_training_is_taken_over_only_with_its_tokens(tmp_path: Path) -> None:
    bare, whole = ask("bare", logprobs=True), ask("whole", logprobs=True)

    def answer(request: Request) -> Any:
        if request == bare:
            return reply()
        return reply(prompt_ids=(1, 2), token_ids=(3,), logprobs=(-0.5,))

    with ledger_of(tmp_path / "run.db", 1) as ledger:
        settle(ledger, FakeLM(answer), bare, whole)
    with ledger_of(tmp_path / "run.db", 2) as ledger:
        found = settle(ledger, lm := FakeLM(answer), bare, whole)
        assert lm.requests == [bare]
        assert found[1].response and (found[1].response.token_ids, found[1].response.logprobs) == ((3,), (-0.5,))


def test_a_model_that_remembers_is_told_of_what_an_earlier_run_answered(tmp_path: Path) -> None:
    paid_once(tmp_path / "run.db")
    with ledger_of(tmp_path / "run.db", 2) as ledger:
        lm: Any = FakeLM()
        told = []
        lm.recall = lambda request, response: told.append((request.replica, response.text))
        settle(ledger, lm, *DRAWS[:2])
        assert told == [(0, "draw 0"), (1, "draw 1")]


def test_a_run_that_goes_on_takes_nothing_from_a_later_one(tmp_path: Path) -> None:
    """What it finds must not depend on who ran meanwhile."""
    path = tmp_path / "run.db"
    with ledger_of(path, 1):
        pass
    with ledger_of(path, 2) as ledger:
        settle(ledger, FakeLM(lambda request: reply("later")), *DRAWS)
    with ledger_of(path, 1) as ledger:
        lm = FakeLM(lambda request: reply("own"))
        found = settle(ledger, lm, *DRAWS)
        assert len(lm.requests) == 3 and [s.response.text for s in found if s.response] == ["own"] * 3

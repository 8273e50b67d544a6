"""The account of a study that several runs search: whatever they do in whatever order, the budget holds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import StoreError
from workbench_optuna.account import Account
from workbench_optuna.account_log import FileLog, check_address

PARTS = {"nodes": "1", "data": "2"}


def joined(*runs: str, calls: float = 100.0) -> Account:
    account = Account()
    for run in runs:
        assert do(account, run, "join", host="h", parts=PARTS, budget={"calls": calls}, used={}) == ""
    return account


def do(account: Account, by: str, what: str, **given: Any) -> str:
    return account.apply({"do": what, "by": by, **given})


def begin(account: Account, by: str, candidate: str, need: float, trials: int = 99, held: float = 0.0) -> str:
    return do(account, by, "begin", candidate=candidate, trials=trials, need={"calls": need}, held={"calls": held})


def draw(account: Account, by: str, used: float, more: float = 0.0, held: float = 0.0) -> str:
    return do(account, by, "draw", used={"calls": used}, more={"calls": more}, held={"calls": held})


def test_a_share_that_is_not_used_goes_back() -> None:
    account = joined("a", "b")
    assert begin(account, "a", "one", 70) == "" and begin(account, "b", "two", 40) == "budget"
    assert draw(account, "a", 20, more=5) == "" and account.members["a"].mark == {"calls": 25}
    do(account, "a", "finish", used={"calls": 22}, candidate="one", evaluated=True)
    assert account.free("calls") == 78 and begin(account, "b", "two", 40) == ""
    assert begin(account, "b", "one", 1) == "known", "it is evaluated"
    assert begin(account, "a", "two", 1) == "known", "somebody is at it"


def test_what_a_dead_searcher_may_have_spent_stays_spent_until_it_says_better() -> None:
    account = joined("a", "b")
    assert begin(account, "a", "one", 60) == draw(account, "a", 10, more=8) == ""
    heard = account.members["a"].operations
    assert do(account, "b", "expire", member="a", operations=heard - 1) == "heard"
    assert do(account, "b", "expire", member="a", operations=heard) == ""
    assert account.free("calls") == 82 and begin(account, "b", "one", 82) == ""
    do(account, "b", "finish", used={"calls": 0})
    again = do(account, "a", "join", host="h", parts=PARTS, budget={"calls": 100.0}, used={"calls": 12})
    assert again == "" and account.free("calls") == 88 and account.members["a"].number == 1


def test_only_the_last_one_makes_the_proof_and_it_has_what_was_reserved() -> None:
    account = joined("a", "b")
    assert begin(account, "a", "one", 10, held=50) == "" and draw(account, "a", 10, held=50) == ""
    assert begin(account, "b", "two", 41) == "budget", "the reserve for the proof is not for shares"
    do(account, "a", "finish", used={"calls": 10})
    assert do(account, "a", "elect") == "others"
    assert do(account, "b", "elect") == "" and do(account, "a", "elect") == "b"
    assert draw(account, "b", 90) == "" and draw(account, "b", 91) == "budget"
    assert begin(account, "a", "three", 0) == "proof"


def test_a_sign_of_life_after_the_end_holds_back_nobody() -> None:
    """It was on its way while the run ended; else the last one would leave the proof to it, and nobody made one."""
    account = joined("a", "b")
    assert do(account, "a", "elect") == "others"
    do(account, "a", "beat")
    assert do(account, "b", "elect") == ""
    again = joined("a", "b")
    assert do(again, "a", "elect") == "others"
    do(again, "a", "join", host="h", parts=PARTS, budget={"calls": 100.0}, used={})  # resumed
    assert do(again, "b", "elect") == "others"


def test_all_candidates_together_are_as_many_as_the_file_says() -> None:
    account = joined("a", "b")
    assert [begin(account, who, name, 1, trials=3) for who, name in ("ax", "by", "az", "bw")] == ["", "", "", "trials"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"parts": {**PARTS, "nodes": "9"}}, "other nodes"), ({"budget": {"calls": 99.0}}, "other budget")],
)
def test_a_file_that_differs_is_refused_by_the_name_of_what_differs(changed: dict[str, Any], named: str) -> None:
    account = joined("a")
    given = {"host": "h", "parts": PARTS, "budget": {"calls": 100.0}, "used": {}} | changed
    assert do(account, "b", "join", **given) == named and [*account.members] == ["a"]


def test_a_member_comes_back_with_a_larger_budget_for_all() -> None:
    account = joined("a", "b")
    common = {"host": "h", "parts": PARTS, "used": {}}
    assert do(account, "a", "join", budget={"calls": 150.0}, **common) == "" and account.free("calls") == 150
    assert do(account, "a", "join", budget={"calls": 100.0}, **common) == "other budget"


def test_in_any_order_of_operations_nobody_passes_the_budget(tmp_path: Path) -> None:
    """Each run spends only below its mark, up to it at worst, and dies at any moment."""
    for seed in range(60):
        rng, budget = random.Random(seed), 50.0
        account, spent = joined("a", "b", "c", calls=budget), dict.fromkeys("abc", 0.0)
        for step in range(120):
            run = rng.choice("abc")
            kind = rng.choice(("begin", "draw", "draw", "draw", "finish", "expire", "join", "beat"))
            if kind == "begin":
                begin(account, run, f"{step}", rng.randrange(20), held=rng.choice((0.0, 5.0)))
            elif kind == "draw":
                needed = spent[run] + rng.randrange(1, 6)
                if draw(account, run, needed, more=rng.randrange(4)) == "":
                    spent[run] = rng.choice((needed, account.members[run].mark["calls"]))
            elif kind == "finish":
                do(account, run, "finish", used={"calls": spent[run]})
            elif kind == "expire":
                other = rng.choice("abc")
                do(account, run, "expire", member=other, operations=account.members[other].operations)
            elif kind == "join":
                do(account, run, "join", host="h", parts=PARTS, budget={"calls": budget}, used={"calls": spent[run]})
            else:
                do(account, run, "beat")
            assert sum(spent.values()) <= sum(m.mark.get("calls", 0.0) for m in account.members.values()) <= budget
            assert account.free("calls") >= -5.0, "shares, and what a late reserve for the proof asks beside them"
    assert sum(spent.values()) > budget / 2


def test_two_readers_of_a_file_see_one_account(tmp_path: Path) -> None:
    one, two = (FileLog(str(tmp_path / "search.log.account"), "study") for _ in range(2))
    other = FileLog(str(tmp_path / "search.log.account"), "another")
    join = {"do": "join", "host": "h", "parts": PARTS, "budget": {"calls": 10.0}, "used": {}}
    for log, run in ((one, "a"), (two, "b"), (other, "c")):
        assert log.apply({**join, "by": run})[1] == ""
    need = {"do": "begin", "trials": 9, "need": {"calls": 6.0}, "held": {}}
    answers = [log.apply({**need, "by": run, "candidate": run})[1] for log, run in ((one, "a"), (two, "b"))]
    assert answers == ["", "budget"] and one.read() == two.read()
    assert [*one.read().members] == ["a", "b"] and [*other.read().members] == ["c"]


def test_a_file_that_is_no_account_is_named(tmp_path: Path) -> None:
    path = tmp_path / "search.log.account"
    path.write_text('{"study": 1}\n')
    with pytest.raises(StoreError, match=r"search\.log\.account, line 1, is not an account"):
        FileLog(str(path), "study").read()


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://me:hunter2@db/x", "PGPASSWORD"),
        ("postgresql://db/x?user=me&password=hunter2", "PGPASSWORD"),
        ("mysql://me@db/x", "PostgreSQL"),
        ("sqlite:///x.db", "journal file"),
    ],
)
def test_an_address_with_a_password_or_of_another_kind_is_refused_and_not_shown(address: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        check_address(address)
    assert "hunter2" not in str(refused.value)

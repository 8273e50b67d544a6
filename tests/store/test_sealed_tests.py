"""What a database knows of sealed tests and of rate limits."""

from __future__ import annotations

import json

import pytest
from tests.helpers.stored import EVENT, NEW_RUN

from workbench.store import RunRecord, SealedTests, Store

ROWS = [f"row{n}" for n in range(20)]


def test_a_test_is_the_same_only_on_just_these_rows(store: Store) -> None:
    """Not on more of them, on fewer, or on as many others; and not of another candidate or run."""
    tests = SealedTests(store)
    tests.add(1, "one", ROWS[:10])
    assert tests.find(1, "one", ROWS[:10]) == tests.find(1, "one", ROWS[9::-1]) == 1
    for rows in (ROWS[:9], ROWS[:11], ROWS, ROWS[1:11], ROWS[10:], []):
        assert tests.find(1, "one", rows) is None, rows
    assert tests.find(1, "other", ROWS[:10]) is None and tests.find(2, "one", ROWS[:10]) is None


@pytest.mark.parametrize("shared", range(6))
def test_tests_overlap_where_they_share_more_than_so_many_rows(shared: int, store: Store) -> None:
    """A twentieth of 40 rows is 2: that many are no overlap yet."""
    tests = SealedTests(store)
    asked = [*ROWS, *(f"own{n}" for n in range(20))]
    tests.add(1, "one", [*ROWS[:shared], *(f"other{n}" for n in range(30))])
    same = {row: row for row in asked}
    assert tests.find_overlapping(same, 0.05 * len(asked), before=None, except_of=[]) == ["r"] * (shared > 2)


def test_a_row_counts_once_by_whatever_key_it_is_known(store: Store) -> None:
    tests = SealedTests(store)
    tests.add(1, "one", ["row0", "edited0", "renamed0"])
    same = {"row0": "row0", "edited0": "row0", "renamed0": "row0", "row1": "row1"}
    assert tests.find_overlapping(same, 0.9, before=None, except_of=[]) == ["r"]
    assert tests.find_overlapping(same, 1, before=None, except_of=[]) == []


def test_the_test_itself_later_ones_and_evaluations_of_a_candidate_are_left_out(store: Store) -> None:
    tests, same = SealedTests(store), {row: row for row in ROWS}
    for run, candidate in ((2, "first"), (3, "own"), (4, "later")):
        store.execute(NEW_RUN, f"r{run}")
        tests.add(run, candidate, ROWS)
    own = tests.find(3, "own", ROWS)
    assert tests.find_overlapping(same, 1, before=own, except_of=[]) == ["r2"]
    assert tests.find_overlapping(same, 1, before=None, except_of=["own"]) == ["r2", "r3", "r4"], (
        "what was chosen counts"
    )
    store.execute("update runs set kind = 'eval' where run in ('r3', 'r4')")
    assert tests.find_overlapping(same, 1, before=None, except_of=["own"]) == ["r2", "r4"]


def test_a_rate_limit_is_remembered_by_the_most_before_and_the_least_after(store: Store) -> None:
    """In whichever order the size fell and grew again."""
    for lm, before, after in (("a", 8, 4), ("b", 3, 2), ("a", 4, 1), ("a", 16, 8), ("b", 2, 2)):
        store.execute(EVENT, "rate_limited", json.dumps({"lm": lm, "before": before, "after": after}))
    store.execute(EVENT, "rate_limited", json.dumps({"lm": "a", "before": "many", "after": 0}))
    assert RunRecord(store, 1).find_rate_limits() == {"a": (16, 1), "b": (3, 2)}

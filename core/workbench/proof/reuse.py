"""Repeated tests on the same sealed rows: of many tests one shows a gain by chance, so each of them needs a smaller
p."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.proof.statistics import LEVEL
from workbench.store import SealedTests, Store

#: Tests that share no more than this part of their rows are tests on rows of their own.
OVERLAP = 0.05


def record_test(store: Store, run_id: int, candidate: str, rows: Sequence[str]) -> None:
    """Record that a workflow was tested. rows: a hash of each row's inputs. Repeating the same test adds nothing."""
    tests, rows = SealedTests(store), sorted(set(rows))
    if rows and tests.find(run_id, candidate, rows) is None:
        tests.add(run_id, candidate, rows)


def earlier_tests(
    store: Store, run_id: int, candidate: str, baseline: str, rows: Sequence[str], test_hash: str = ""
) -> list[str]:
    """The runs that tested a workflow on some of these rows before, one name for each test.

    Tests of the baseline of this run do not count: they chose nothing. A test of the same candidate on fewer of the
    rows does: testing, adding rows and testing again makes two tests. test_hash: `Task.test_hash`, to find the tests of
    versions without the table `sealed_tests`.
    """
    store.flush()
    tests, rows = SealedTests(store), sorted(set(rows))
    own = tests.find(run_id, candidate, rows)  # and what came after it is later
    old = tests.find_unlisted(test_hash, except_run=run_id)
    return old + tests.find_overlapping(rows, OVERLAP * len(rows), before=own, except_of=baseline)


def level_after(looks: Sequence[str]) -> float:
    """The level of a test after so many others on the same rows, so that all of them together keep LEVEL
    (Bonferroni)."""
    return LEVEL / (len(looks) + 1)


def looks_warning(looks: Sequence[str]) -> str:
    """The earlier tests on the same rows, and the level that they leave for this one."""
    names = list(dict.fromkeys(looks))
    runs = ", ".join(names[-5:]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    times = "once" if len(looks) == 1 else f"{len(looks)} times"
    return (
        f"these sealed rows were tested {times} before (run {runs}): the more tests, the likelier is a gain by "
        f"chance, so p must be below {level_after(looks):.2g} for this one"
    )

"""Repeated tests on the same sealed rows. Of many tests, one shows a gain by chance; so each needs a smaller p."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from workbench.hashing import digest
from workbench.proof.statistics import LEVEL
from workbench.store import SealedTests, Store
from workbench.task import Task

#: Tests that share no more than this part of their rows count as independent.
OVERLAP = 0.05


def record_test(store: Store, run_id: int, candidate: str, rows: Sequence[str]) -> None:
    """Record a test of a workflow. rows: a hash of each row's inputs. Recording the same test again adds nothing."""
    tests, rows = SealedTests(store), sorted(set(rows))
    if rows and tests.find(run_id, candidate, rows) is None:
        tests.add(run_id, candidate, rows)


def evaluated_name(task: Task) -> str:
    """The name under which an evaluation of a task's own workflow is recorded as a test: which model answers is not in
    the workflow's hash, and to choose one by its score on sealed rows is a choice, too."""
    served = task.spec.lm.model_dump(mode="json", include={"model", "api_base", "temperature", "max_tokens", "extra"})
    return f"{task.workflow.hash} {digest(served)[:16]}"


def find_earlier_tests(
    store: Store, run_id: int, candidate: str, baseline: Collection[str], rows: Sequence[str], test_hash: str = ""
) -> list[str]:
    """The names of the runs that tested a workflow on some of these rows before, one for each test.

    Tests of this run's baseline, by its names, do not count: they chose nothing. A test of the same candidate on fewer
    of the rows does: testing, adding rows and testing again makes two tests. test_hash: `Task.test_hash`, to find the
    tests of versions without the table `sealed_tests`.
    """
    store.flush()
    tests, rows = SealedTests(store), sorted(set(rows))
    own = tests.find(run_id, candidate, rows)  # tests after it are later ones
    old = tests.find_unlisted(test_hash, except_run=run_id)
    return old + tests.find_overlapping(rows, OVERLAP * len(rows), before=own, except_of=baseline)


def level_after(earlier: Sequence[str]) -> float:
    """The level of a test after the given earlier ones, such that all together keep LEVEL (Bonferroni)."""
    return LEVEL / (len(earlier) + 1)


def reuse_warning(earlier: Sequence[str]) -> str:
    """The warning that names the earlier tests on the same rows, and the level left for this one."""
    names = list(dict.fromkeys(earlier))
    runs = ", ".join(names[-5:]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    times = "once" if len(earlier) == 1 else f"{len(earlier)} times"
    return (
        f"these sealed rows were tested {times} before (run {runs}). The more tests, the likelier a gain by chance, so "
        f"p must be below {level_after(earlier):.2g} for this one"
    )

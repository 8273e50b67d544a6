"""Repeated tests on the same sealed rows. Of many tests, one shows a gain by chance, so each needs a smaller p."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.base.hashing import digest
from workbench.proof.statistics import LEVEL
from workbench.store import SealedTests, SeenRows, Store
from workbench.task import Task, describe_rows, match_rows

#: Tests that share at most this fraction of their rows count as independent.
OVERLAP = 0.05

#: Rows with their keys and texts (`workbench.task.describe_rows`).
Described = Sequence[tuple[str, Mapping[str, Any]]]


def record_test(store: Store, run_id: int, candidate: str, rows: Described) -> None:
    """Record a test of a workflow. Recording the same test again adds nothing."""
    tests, keys = SealedTests(store), sorted({key for key, _ in rows})
    SeenRows(store).add(rows)
    if keys and tests.find(run_id, candidate, keys) is None:
        tests.add(run_id, candidate, keys)


def record_scored(store: Store, run_id: int, split: str, candidate: str, rows: Described) -> None:
    """Record that a candidate of a run of `optimize` was scored on train or val. rows: those of the split that were not
    recorded before."""
    SeenRows(store).add(rows)
    SeenRows(store).add_scored(run_id, split, candidate, [key for key, _ in rows])


def evaluated_name(task: Task) -> str:
    """Return the name under which an evaluation of a task's own workflow is recorded as a test. It includes the model,
    which is not in the workflow's hash, because choosing a model by its score on sealed rows is a choice, too."""
    served = task.spec.lm.model_dump(mode="json", include={"model", "api_base", "temperature", "max_tokens", "extra"})
    return f"{task.workflow.hash} {digest(served)[:16]}"


def find_earlier_tests(store: Store, run_id: int, candidate: str, task: Task, rows: Described) -> list[str]:
    """Return the names of the runs that scored workflows on some of these rows before, one for each workflow.

    These count: tests of `optimize`, on any rows; evaluations by `workbench eval`, in any split; and each candidate
    scored on these rows when they were train or val. Rows are the same by the rule of the splits, so a row that the
    splits kept apart from a sealed one is another row. Evaluations of this run's baseline do not count, since they
    chose nothing. A test of the same candidate on fewer of the rows does: testing, adding rows and testing again makes
    two tests.
    """
    store.flush()
    tests, seen = SealedTests(store), SeenRows(store)
    keys = sorted({key for key, _ in rows})
    own = describe_rows([*task.dataset.train, *task.dataset.val], task.inputs, task.rule)
    kept_apart = {key for key, _ in own} - {*keys}  # the splits kept them apart, so they are other rows
    same = {**match_rows(rows, seen.read_texts(without={*keys, *kept_apart})), **{key: key for key in keys}}
    this = tests.find(run_id, candidate, keys)  # tests after it are later ones
    most, baseline = OVERLAP * len(keys), task.workflow.hash
    tested = tests.find_overlapping(same, most, before=this, except_of=(baseline, evaluated_name(task)))
    return seen.find_selections(same, most, before=run_id, baseline=baseline) + tested


def find_tests_of(store: Store, task: Task) -> list[str]:
    """Return the tests that a run starting now would count, see `find_earlier_tests`."""
    described = describe_rows(task.dataset.test.open(), task.inputs, task.rule)
    return find_earlier_tests(store, sys.maxsize, "", task, described)


def level_after(earlier: Sequence[str]) -> float:
    """Return the two-sided level of a test after k earlier ones on the same rows: LEVEL, then LEVEL / (k (k+1)).

    A gain is claimed on one side, so the first test errs in 2.5 of 100 cases, and all later ones together in 2.5 more,
    however many there are: 1/2 + 1/6 + 1/12 + ... = 1.
    """
    k = len(earlier)
    return LEVEL / (k * (k + 1)) if k else LEVEL


def reuse_warning(earlier: Sequence[str]) -> str:
    """Return the warning that names the earlier tests on the same rows, and the level left for this one."""
    names = list(dict.fromkeys(earlier))
    runs = ", ".join(names[-5:]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    times = "once" if len(earlier) == 1 else f"{len(earlier)} times"
    return (
        f"workflows were scored on these sealed rows {times} before (run {runs}). The more of them, the "
        f"likelier a gain by chance, so p must be below {level_after(earlier):.2g} for this one"
    )

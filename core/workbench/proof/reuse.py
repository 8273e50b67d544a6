"""Repeated tests on the same sealed rows: of many tests one shows a gain by chance, so each of them needs a smaller
p."""

from __future__ import annotations

import json
from collections.abc import Sequence

from workbench.store import Store, now

#: Tests that share no more than this part of their rows are tests on rows of their own.
OVERLAP = 0.05

#: The level of a single test, and of all tests on the same rows together.
LEVEL = 0.05


def record_test(store: Store, run_id: int, candidate: str, rows: Sequence[str]) -> None:
    """Remember that a workflow was tested. rows: a hash of each row's inputs. The same test again is no second one."""
    rows = sorted(set(rows))
    if not rows or _same_test(store, run_id, candidate, rows) is not None:
        return
    cursor = store.execute(
        "insert into sealed_tests (run_id, candidate, n, at) values (?, ?, ?, ?)", run_id, candidate, len(rows), now()
    )
    store.execute("insert into sealed_test_rows select ?, value from json_each(?)", cursor.lastrowid, json.dumps(rows))


def earlier_tests(
    store: Store, run_id: int, candidate: str, baseline: str, rows: Sequence[str], test_hash: str = ""
) -> list[str]:
    """The runs that tested a workflow on some of these rows before, one name for each test.

    Tests of the baseline of this run are left out: there was nothing to choose. A test of the same candidate on fewer
    of the rows counts: who looks, tests more rows and looks again has looked twice. test_hash: finds the tests that a
    version without `sealed_tests` made, by `Task.test_hash`.
    """
    store.flush()
    rows = sorted(set(rows))
    own = _same_test(store, run_id, candidate, rows)
    found = store.rows(
        "select t.id, r.run from sealed_tests t join runs r on r.id = t.run_id join sealed_test_rows s on s.test_id "
        "= t.id "
        "where s.row in (select value from json_each(?)) and t.candidate != ? and (? is null or t.id < ?) "
        "group by t.id having count(*) > ? order by t.id",
        json.dumps(rows),
        baseline,
        own,
        own,
        OVERLAP * len(rows),
    )
    old = store.rows(
        "select distinct r.id, r.run, e.candidate from runs r join evaluations e on e.run_id = r.id "
        "where e.split = 'test' and e.n > 0 and json_extract(r.options, '$.test') = ? and r.id != ? "
        "and e.candidate != (select hash from candidates where run_id = r.id order by seq limit 1) "
        "and not exists (select 1 from sealed_tests t where t.run_id = r.id) order by r.id",
        test_hash,
        run_id,
    )
    return [row["run"] for row in old] + [row["run"] for row in found]


def _same_test(store: Store, run_id: int, candidate: str, rows: Sequence[str]) -> int | None:
    """The number of a recorded test of this candidate in this run on just these rows."""
    row = store.row(
        "select t.id from sealed_tests t where t.run_id = ? and t.candidate = ? and t.n = ? and not exists "
        "(select 1 from sealed_test_rows s where s.test_id = t.id and s.row not in (select value from json_each(?)))",
        run_id,
        candidate,
        len(rows),
        json.dumps(list(rows)),
    )
    return row["id"] if row else None


def level_after(looks: Sequence[str]) -> float:
    """The level of a test after so many others on the same rows (Bonferroni)."""
    return LEVEL / (len(looks) + 1)


def looks_warning(looks: Sequence[str]) -> str:
    """The earlier tests on the same rows, and the level that they leave for this one."""
    names = list(dict.fromkeys(looks))
    runs = ", ".join(names[-5:]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    times = "once" if len(looks) == 1 else f"{len(looks)} times"
    return (
        f"these sealed rows were tested {times} before (run {runs}): the more tests, the likelier is a gain by "
        "chance, so "
        f"p must be below {level_after(looks):.2g} for this one"
    )

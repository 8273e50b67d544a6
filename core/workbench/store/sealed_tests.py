"""Tests of changed workflows on sealed rows, of all runs in a database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.store.database import Store, now


@dataclass(frozen=True, slots=True)
class SealedTests:
    """The sealed tests in a database. rows: hashes of the inputs of the rows, each once."""

    store: Store

    def add(self, run_id: int, candidate: str, rows: Sequence[str]) -> None:
        """Write, at once, that a candidate was tested on these rows."""
        sql = "insert into sealed_tests (run_id, candidate, n, at) values (?, ?, ?, ?)"
        cursor = self.store.execute(sql, run_id, candidate, len(rows), now())
        sql = "insert into sealed_test_rows select ?, value from json_each(?)"
        self.store.execute(sql, cursor.lastrowid, json.dumps(rows))

    def find(self, run_id: int, candidate: str, rows: Sequence[str]) -> int | None:
        """The number of a test of this candidate in this run on just these rows."""
        row = self.store.row(
            "select t.id from sealed_tests t where t.run_id = ? and t.candidate = ? and t.n = ? and not exists "
            "(select 1 from sealed_test_rows s where s.test_id = t.id and s.row not in "
            "(select value from json_each(?)))",
            run_id,
            candidate,
            len(rows),
            json.dumps(list(rows)),
        )
        return row["id"] if row else None

    def find_overlapping(
        self, rows: Sequence[str], more_than: float, *, before: int | None, except_of: str
    ) -> list[str]:
        """The runs of tests that share more than so many of the rows, one name for each test.

        before: only tests with a smaller number; except_of: a candidate whose tests are left out.
        """
        found = self.store.rows(
            "select t.id, r.run from sealed_tests t join runs r on r.id = t.run_id join sealed_test_rows s "
            "on s.test_id = t.id "
            "where s.row in (select value from json_each(?)) and t.candidate != ? and (? is null or t.id < ?) "
            "group by t.id having count(*) > ? order by t.id",
            json.dumps(rows),
            except_of,
            before,
            before,
            more_than,
        )
        return [row["run"] for row in found]

    def find_unlisted(self, test_hash: str, *, except_run: int) -> list[str]:
        """The runs, one name for each test, that tested a changed workflow on this test set before tests were listed
        in a table of their own."""
        found = self.store.rows(
            "select distinct r.id, r.run, e.candidate from runs r join evaluations e on e.run_id = r.id "
            "where e.split = 'test' and e.n > 0 and json_extract(r.options, '$.test') = ? and r.id != ? "
            "and e.candidate != (select hash from candidates where run_id = r.id order by seq limit 1) "
            "and not exists (select 1 from sealed_tests t where t.run_id = r.id) order by r.id",
            test_hash,
            except_run,
        )
        return [row["run"] for row in found]

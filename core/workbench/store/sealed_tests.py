"""Rows seen before: the tests of workflows on sealed rows, and the rows on which candidates were scored."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.store.content import parse_json
from workbench.store.database import Store, dumps, now


@dataclass(frozen=True, slots=True)
class SealedTests:
    """The tests in a database: workflows with the rows on which their scores were seen. rows: keys, each once."""

    store: Store

    def add(self, run_id: int, candidate: str, rows: Sequence[str]) -> None:
        """Record immediately that a candidate was tested on these rows."""
        sql = "insert into sealed_tests (run_id, candidate, n, at) values (?, ?, ?, ?)"
        cursor = self.store.execute(sql, run_id, candidate, len(rows), now())
        sql = "insert into sealed_test_rows select ?, value from json_each(?)"
        self.store.execute(sql, cursor.lastrowid, json.dumps(rows))

    def add_row(self, run_id: int, candidate: str, row: str) -> None:
        """Queue that a candidate was tested on this row, in one test for each run and candidate."""
        one = (run_id, candidate)
        self.store.write(
            "insert into sealed_tests (run_id, candidate, n, at) select ?, ?, 0, ? where not exists "
            "(select 1 from sealed_tests where run_id = ? and candidate = ?)",
            *(*one, now(), *one),
        )
        self.store.write(
            "insert or ignore into sealed_test_rows values "
            "((select min(id) from sealed_tests where run_id = ? and candidate = ?), ?)",
            *(*one, row),
        )
        self.store.write(
            "update sealed_tests set n = n + changes() where id = (select min(id) from sealed_tests where run_id = ? "
            "and candidate = ?)",
            *one,
        )

    def find(self, run_id: int, candidate: str, rows: Sequence[str]) -> int | None:
        """Return the number of a test of this candidate in this run on exactly these rows."""
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
        self, same: Mapping[str, str], more_than: float, *, before: int | None, except_of: Collection[str]
    ) -> list[str]:
        """List the runs of tests that share more than `more_than` rows, one name for each test.

        same: the rows in question, by every key that stands for them. before: only tests with a smaller number.
        except_of: candidates whose evaluations (`workbench eval`) do not count. Tests by `optimize` always count,
        because the workflow was chosen.
        """
        found = self.store.rows(
            "select t.id, r.run, s.row from sealed_tests t join runs r on r.id = t.run_id join sealed_test_rows s "
            "on s.test_id = t.id where s.row in (select value from json_each(?)) "
            "and (r.kind is not 'eval' or t.candidate not in (select value from json_each(?))) "
            "and (? is null or t.id < ?) order by t.id",
            json.dumps([*same]),
            json.dumps([*except_of]),
            before,
            before,
        )
        shared, runs = defaultdict[int, set[str]](set), dict[int, str]()
        for row in found:
            shared[row["id"]].add(same[row["row"]])
            runs[row["id"]] = row["run"]
        return [runs[test] for test, rows in shared.items() if len(rows) > more_than]


def _are_texts(value: Any) -> bool:
    return is_dict(value) and all(isinstance(text, str) for text in value.values())


@dataclass(frozen=True, slots=True)
class SeenRows:
    """The rows that were scored in a database. A row is identified by its key; its texts show near copies."""

    store: Store

    def add(self, rows: Iterable[tuple[str, Mapping[str, object]]]) -> None:
        """Queue rows with their texts."""
        for key, texts in rows:
            self.store.write("insert or ignore into seen_rows values (?, ?)", key, dumps(texts))

    def add_scored(self, run_id: int, split: str, candidate: str, rows: Iterable[str]) -> None:
        """Queue that a candidate of a run was scored, and add these rows of the split if they are new."""
        self.store.write("insert or ignore into scored_candidates values (?, ?, ?)", run_id, split, candidate)
        for row in rows:
            self.store.write("insert or ignore into scored_rows values (?, ?, ?)", run_id, split, row)

    def read_texts(
        self, *, of: Collection[str] | None = None, without: Collection[str] = ()
    ) -> list[tuple[str, dict[str, object]]]:
        """Return (key, texts) of the rows. of: only these. without: all but these."""
        sql = "select row, texts from seen_rows where row {} (select value from json_each(?)) order by row"
        asked = ("not in", without) if of is None else ("in", of)
        rows = self.store.rows(sql.format(asked[0]), json.dumps([*asked[1]]))
        found = [(row["row"], parse_json(row["texts"], "the table seen_rows", dict)) for row in rows]
        return [(row, texts) for row, texts in found if all(map(_are_texts, map(texts.get, ("telling", "others"))))]

    def find_selections(self, same: Mapping[str, str], more_than: float, *, before: int, baseline: str) -> list[str]:
        """List the earlier runs of `optimize` that scored candidates on more than `more_than` of the rows in another
        split, one name for each candidate except the baseline: each may have been chosen by them. same: as in
        `SealedTests.find_overlapping`."""
        found = self.store.rows(
            "select run_id, split, row from scored_rows where run_id < ? and row in (select value from json_each(?))",
            before,
            json.dumps([*same]),
        )
        shared = Counter((run, split) for run, split, _ in {(r["run_id"], r["split"], same[r["row"]]) for r in found})
        names: list[str] = []
        for (run_id, split), rows in sorted(shared.items()):
            if rows > more_than:
                candidates = self.store.rows(
                    "select r.run from scored_candidates c join runs r on r.id = c.run_id "
                    "where c.run_id = ? and c.split = ? and c.candidate != ?",
                    run_id,
                    split,
                    baseline,
                )
                names += [row["run"] for row in candidates]
        return names

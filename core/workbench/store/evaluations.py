"""The evaluations of a run with their rows' results."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from workbench.store.content import check_sum, checksum
from workbench.store.database import Store, dumps, insertion


class ResultRow(NamedTuple):
    """A row of an evaluation as it is stored.

    prediction, spans, fields (of the row), scores (by further metrics) and cost are JSON. row_key: equal for equal rows
    of any file. cluster: equal for rows that count as one.
    """

    example: str
    score: float | None
    failure: str | None
    message: str | None
    feedback: str | None
    prediction: str
    spans: str | None
    fields: str | None = None
    scores: str | None = None
    cost: str | None = None
    row_key: str | None = None
    cluster: str | None = None


def read_usual_row(store: Store, candidate: str) -> tuple[float, int, str] | None:
    """Return (mean calls of a row, rows, run) of the newest complete evaluation of a workflow, or None."""
    sql = (
        "select json_extract(e.objectives, '$.calls') as calls, e.n, r.run from evaluations e join runs r on r.id = "
        "e.run_id where e.candidate = ? and e.complete and e.n > 0 and calls is not null order by e.id desc limit 1"
    )
    row = store.row(sql, candidate)
    return None if row is None else (float(row["calls"]), row["n"], row["run"])


_ADD_RESULT = (
    f"insert or replace into results (evaluation_id, position, {', '.join(ResultRow._fields)}, checksum) values ("
    "(select id from evaluations where run_id = ? and candidate = ? and split = ? and replica = ?), ?"
    f"{', ?' * len(ResultRow._fields)}, ?)"
)


@dataclass(frozen=True, slots=True)
class Evaluations:
    """The evaluations of one run. Each is identified by its candidate, split and replica."""

    store: Store
    run_id: int

    def find(self, candidate: str, split: str, replica: int) -> sqlite3.Row | None:
        """Return n and complete of an evaluation."""
        sql = "select n, complete from evaluations where run_id = ? and candidate = ? and split = ? and replica = ?"
        return self.store.row(sql, self.run_id, candidate, split, replica)

    def delete_val(self) -> None:
        """Delete all evaluations on val immediately."""
        self.store.execute("delete from evaluations where run_id = ? and split = 'val'", self.run_id)

    # Rows are stored one by one or all at once; n and score stay empty until the end.

    def begin(self, candidate: str, split: str, replica: int) -> None:
        """Queue an evaluation without rows. An existing one loses its rows, which are scored again."""
        key = (self.run_id, candidate, split, replica)
        one = "run_id = ? and candidate = ? and split = ? and replica = ?"
        self._begin(candidate, split, replica)
        self.store.write(f"delete from results where evaluation_id = (select id from evaluations where {one})", *key)
        self.store.write(f"update evaluations set n = 0, score = null, failed = 0, complete = 0 where {one}", *key)

    def _begin(self, candidate: str, split: str, replica: int) -> None:
        row = {"run_id": self.run_id, "candidate": candidate, "split": split, "replica": replica}
        self.store.write(*insertion("insert or ignore into evaluations", {**row, "n": 0, "failed": 0, "complete": 0}))

    def add_row(self, candidate: str, split: str, replica: int, position: int, row: ResultRow) -> asyncio.Future[None]:
        """Queue a row of an evaluation that has begun. It replaces an earlier result of the row."""
        return self.store.write(_ADD_RESULT, self.run_id, candidate, split, replica, position, *row, checksum(*row))

    def end(
        self, candidate: str, split: str, replica: int, *, n: int, score: float, failed: int, complete: bool, means: str
    ) -> asyncio.Future[None]:
        """Queue the totals of an evaluation that has begun. means: objectives as JSON."""
        return self.store.write(
            "update evaluations set n = ?, score = ?, failed = ?, complete = ?, objectives = ? "
            "where run_id = ? and candidate = ? and split = ? and replica = ?",
            *(n, score, failed, int(complete), means, self.run_id, candidate, split, replica),
        )

    def read_rows(
        self, candidate: str | None = None, *, split: str | None = None, examples: Collection[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the results of a candidate, or of all, with `candidate`, `split` and `replica`; optionally of one
        split or of some examples. Raises StoreError for damaged rows."""
        asked = None if examples is None else dumps([*examples])
        rows = self.store.rows(
            "select r.*, e.candidate, e.split, e.replica from results r join evaluations e on e.id = r.evaluation_id "
            "where e.run_id = ? and (? is null or e.candidate = ?) and (? is null or e.split = ?) and (? is null or "
            "r.example in (select value from json_each(?))) order by e.id, r.position",
            *(self.run_id, candidate, candidate, split, split, asked, asked),
        )
        found = [dict(row) for row in rows]
        for row in found:
            place = f"the row {row['example']} of {self.store.path} (table results)"
            check_sum(row, place, *(row[name] for name in ResultRow._fields))
        return found

    # Partial reads, for lists of many rows

    def list_all(self) -> list[sqlite3.Row]:
        """List the evaluations in order: candidate, split, replica, n, score, failed, complete."""
        sql = (
            "select candidate, split, replica, n, score, failed, complete from evaluations where run_id = ? order by id"
        )
        return list(self.store.rows(sql, self.run_id))

    def count_rows(self) -> int:
        """Count the scored rows of all candidates and splits."""
        sql = (
            "select count(*) from results where evaluation_id in (select id from evaluations where run_id = ?) and "
            "(score is not null or failure is not null)"
        )
        return self.store.number(sql, self.run_id)

    def list_scores(self, candidate: str, split: str, *, part: str = "") -> list[sqlite3.Row]:
        """List example, score and failure of a candidate's rows in a split, with replica, in order. part: only rows
        whose stored trace contains this text."""
        sql = (
            "select r.example, r.score, r.failure, e.replica from results r join evaluations e on e.id = "
            "r.evaluation_id where e.run_id = ? and e.candidate = ? and e.split = ? and (? = '' or "
            "instr(r.spans, ?) > 0) order by e.replica, r.position"
        )
        return list(self.store.rows(sql, self.run_id, candidate, split, part, part))

    def list_keys(self, candidate: str) -> list[sqlite3.Row]:
        """List example, row_key, cluster and split of a candidate's rows in all splits, each once."""
        sql = (
            "select distinct r.example, r.row_key, r.cluster, e.split from results r join evaluations e on e.id = "
            "r.evaluation_id where e.run_id = ? and e.candidate = ? order by e.id, r.position"
        )
        return list(self.store.rows(sql, self.run_id, candidate))

    # Train rows: those of one candidate and replica are collected in one evaluation, whose n and score stay empty.

    def add_train(
        self, candidate: str, replica: int, results: Iterable[tuple[int, str, float | None, str | None]]
    ) -> None:
        """Queue (position, example, score, failure) of train rows. An existing score is not replaced."""
        key = (self.run_id, candidate, replica)
        self._begin(candidate, "train", replica)
        for result in results:
            self.store.write(
                "insert into results (evaluation_id, position, example, score, failure) values ((select id from "
                "evaluations where run_id = ? and candidate = ? and replica = ? and split = 'train'), ?, ?, ?, ?) "
                "on conflict do update set score = excluded.score, failure = excluded.failure "
                "where score is null",  # the server failed then, and is back now
                *key,
                *result,
            )

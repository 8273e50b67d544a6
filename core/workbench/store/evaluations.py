"""The evaluations of a run, and the results of their rows."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from workbench.store.database import Store


class ResultRow(NamedTuple):
    """One row of an evaluation as it is stored; prediction and spans are JSON."""

    example: str
    score: float | None
    failure: str | None
    message: str | None
    feedback: str | None
    prediction: str
    spans: str | None


@dataclass(frozen=True, slots=True)
class Evaluations:
    """The evaluations of one run. An evaluation is known by its candidate, split and replica."""

    store: Store
    run_id: int

    def find(self, candidate: str, split: str, replica: int) -> sqlite3.Row | None:
        """id, n and complete of an evaluation."""
        sql = "select id, n, complete from evaluations where run_id = ? and candidate = ? and split = ? and replica = ?"
        return self.store.row(sql, self.run_id, candidate, split, replica)

    def delete(self, evaluation_id: int) -> None:
        """Delete, at once, an evaluation and its results."""
        self.store.execute("delete from evaluations where id = ?", evaluation_id)

    def delete_val(self) -> None:
        """Delete, at once, all evaluations on val."""
        self.store.execute("delete from evaluations where run_id = ? and split = 'val'", self.run_id)

    def add(
        self,
        candidate: str,
        split: str,
        replica: int,
        *,
        n: int,
        score: float | None,
        failed: int,
        complete: bool,
        objectives: str,
        results: Iterable[ResultRow],
    ) -> asyncio.Future[None] | None:
        """Queue an evaluation with its results; the future of the last result, None if there is none."""
        key = (self.run_id, candidate, split, replica)
        self.store.write(
            "insert into evaluations (run_id, candidate, split, replica, n, score, failed, complete, objectives) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *key,
            n,
            score,
            failed,
            int(complete),
            objectives,
        )
        done = None
        for position, result in enumerate(results):
            done = self.store.write(
                "insert into results values ((select id from evaluations where run_id = ? and candidate = ? and "
                "split = ? and replica = ?), ?, ?, ?, ?, ?, ?, ?, ?)",
                *key,
                position,
                *result,
            )
        return done

    # Train rows: those of one candidate and replica gather in one evaluation, whose n and score stay empty

    def add_train(
        self, candidate: str, replica: int, results: Iterable[tuple[int, str, float | None, str | None]]
    ) -> None:
        """Queue (position, example, score, failure) of train rows; only where a score is missing is it replaced."""
        key = (self.run_id, candidate, replica)
        self.store.write(
            "insert or ignore into evaluations (run_id, candidate, split, replica, n, failed, complete) "
            "values (?, ?, 'train', ?, 0, 0, 0)",
            *key,
        )
        for result in results:
            self.store.write(
                "insert into results (evaluation_id, position, example, score, failure) values ((select id from "
                "evaluations where run_id = ? and candidate = ? and replica = ? and split = 'train'), ?, ?, ?, ?) "
                "on conflict do update set score = excluded.score, failure = excluded.failure "
                "where score is null",  # a server that is back
                *key,
                *result,
            )

    def read_train_scores(self) -> list[tuple[str, float]]:
        """(example, score) of every train row that was scored, in the order of the evaluations."""
        rows = self.store.rows(
            "select r.example, r.score from results r join evaluations e on e.id = r.evaluation_id where e.run_id = ? "
            "and e.split = 'train' and r.score is not null order by e.id, r.position",
            self.run_id,
        )
        return [(row["example"], row["score"]) for row in rows]

    def read_imperfect_test_rows(self, candidate: str) -> list[dict[str, Any]]:
        """The results of a candidate on the test that score below 1, worst first."""
        rows = self.store.rows(
            "select r.example, r.score, r.failure, r.feedback, r.prediction from results r "
            "join evaluations e on e.id = r.evaluation_id where e.run_id = ? and e.candidate = ? and e.split = 'test' "
            "and (r.score is null or r.score < 1) order by r.score, r.position",
            self.run_id,
            candidate,
        )
        return [dict(row) for row in rows]

"""Which train rows a run solved, and how often: what its optimizers, or `workbench eval --split train`, saw of them;
and how rows are drawn by that.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.store import Store
from workbench.study import Evaluation
from workbench.task import Example


class TrainRows:
    """Keeps the scores of train rows, each once for a candidate and a replica, so that a replay adds nothing.

    An optimizer scores the rows of train a few at a time: those of one candidate and replica gather in one evaluation,
    whose own n and score are left empty. Only score and kind of failure of a row are kept; answers are in `calls`.
    """

    def __init__(self, store: Store, run_id: int, train: Sequence[Example]):
        self.store, self.run_id = store, run_id
        self.places = {example.id: (place, example) for place, example in enumerate(train)}

    def record(self, evaluation: Evaluation) -> None:
        """Queue what an evaluation tells of train rows; rows of val, and made-up ones, are left out."""
        seen = [(*self.places[r.example.id], r) for r in evaluation.results if r.example.id in self.places]
        seen = [(place, result) for place, example, result in seen if example == result.example]
        if not seen:
            return
        key, write = (self.run_id, evaluation.workflow.hash, evaluation.replica), self.store.write
        write(
            "insert or ignore into evaluations (run_id, candidate, split, replica, n, failed, complete) "
            "values (?, ?, 'train', ?, 0, 0, 0)",
            *key,
        )
        for place, result in seen:
            write(
                "insert into results (evaluation_id, position, example, score, failure) values ((select id from "
                "evaluations "
                "where run_id = ? and candidate = ? and replica = ? and split = 'train'), ?, ?, ?, ?) on conflict do "
                "update "
                "set score = excluded.score, failure = excluded.failure where score is null",  # a server that is back
                *key,
                place,
                result.example.id,
                result.score,
                result.failure,
            )


def train_scores(store: Store, run_id: int) -> dict[str, list[float]]:
    """All scores of each train row of a run, by the row's id: of every candidate and replica that was tried on it.
    Failures of the infrastructure, which say nothing about the workflow, are left out."""
    found: dict[str, list[float]] = {}
    for row in store.rows(
        "select r.example, r.score from results r join evaluations e on e.id = r.evaluation_id where e.run_id = ? and "
        "e.split = 'train' and r.score is not null order by e.id, r.position",
        run_id,
    ):
        found.setdefault(row["example"], []).append(row["score"])
    return found

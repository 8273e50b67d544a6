"""Stores evaluations with their results, and the scores of train rows, which weight the drawing of rows.

Scores of train rows come from optimizers and from `workbench eval --split train`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.base.hashing import digest
from workbench.proof import record_scored
from workbench.store import Evaluations, ResultRow, Store, dumps, parse_json
from workbench.study import Evaluation, Result
from workbench.task import Example, Task, content_id, describe_rows, normalised_inputs
from workbench.workflow import Workflow


class RowKeys:
    """Keys for each row of a task: one that equal rows of any file share, and one for its cluster.

    A row's key has two words: the one from `describe_rows`, and one from the label, which may be empty. After a
    correction of its label, a row is scored by another rule, so its key differs.
    """

    def __init__(self, task: Task):
        self._task, self._known = task, dict[str, tuple[str, str]]()

    def __call__(self, row: Example) -> tuple[str, str]:
        if row.id not in self._known:
            said, label = normalised_inputs(row, self._task.inputs), self._task.label
            key = digest(said) if said else content_id(row.fields)
            held = digest(normalised_inputs(row, [label]))[:16] if label is not None and label in row else ""
            self._known[row.id] = f"{key} {held}", self._task.cluster_of(row)
        return self._known[row.id]


async def store_evaluation(store: Store, run_id: int, evaluation: Evaluation, keys: RowKeys) -> None:
    """Store an evaluation and wait for the commit. In a replay it is already stored, and nothing is written."""
    evaluations, key = Evaluations(store, run_id), (evaluation.workflow.hash, evaluation.split, evaluation.replica)
    exists = evaluations.find(*key)
    if exists is not None and exists["complete"] >= evaluation.complete and exists["n"] >= len(evaluation.results):
        return
    evaluations.begin(*key)
    for position, result in enumerate(evaluation.results):
        evaluations.add_row(*key, position, as_stored_row(result, keys))
    await end_evaluation(evaluations, evaluation)


def end_evaluation(evaluations: Evaluations, found: Evaluation) -> asyncio.Future[None]:
    """Queue the totals of an evaluation whose rows are stored."""
    return evaluations.end(
        *(found.workflow.hash, found.split, found.replica),
        n=len(found.results),
        score=found.score,
        failed=sum(found.failures.values()),
        complete=found.complete,
        means=dumps(found.objectives),
    )


def find_evaluation(store: Store, run_id: int, workflow: Workflow, val: Sequence[Example]) -> Evaluation | None:
    """Return the stored evaluation of a candidate on these val rows, without traces; None if there is none.

    Raises:
        StoreError: the rows are damaged.
    """
    exists = Evaluations(store, run_id).find(workflow.hash, "val", 0)
    if exists is None or not exists["n"]:
        return None
    rows = [
        row
        for row in Evaluations(store, run_id).read_rows(workflow.hash)
        if (row["split"], row["replica"]) == ("val", 0)
    ]
    if len(rows) != exists["n"] or [row["example"] for row in rows] != [example.id for example in val[: len(rows)]]:
        return None
    results = tuple(_as_result(row, example) for row, example in zip(rows, val, strict=False))
    return Evaluation(workflow, "val", results, bool(exists["complete"]))


def _as_result(row: Mapping[str, Any], example: Example) -> Result:
    place = f"the row {example.id} (table results)"
    return Result(
        example,
        row["score"],
        row["failure"],
        row["message"],
        row["feedback"],
        parse_json(row["prediction"], place, dict),
        **parse_json(row["cost"], place, dict),
        scores=parse_json(row["scores"], place, dict) if row["scores"] else {},
    )


def as_stored_row(result: Result, keys: RowKeys, whole: bool = False) -> ResultRow:
    """Convert a result to its stored form. whole: include the row itself."""
    cost = {"calls": result.calls, "tokens": result.tokens, "usd": result.usd, "seconds": result.seconds}
    cost |= {"turn": result.turn} if result.turn else {}
    return ResultRow(
        result.example.id,
        None if result.score is None else float(result.score),
        result.failure,
        result.message,
        result.feedback,
        dumps(dict(result.prediction)),
        dumps([span.as_dict() for span in result.trace.spans]) if result.trace else None,
        dumps(dict(result.example.fields)) if whole else None,
        dumps(dict(result.scores)) if result.scores else None,
        dumps(cost),
        *keys(result.example),
    )


class ScoredRows:
    """Records which train and val rows a run's candidates were scored on: a later run may test on them."""

    def __init__(self, store: Store, run_id: int, task: Task):
        self._store, self._run_id, self._inputs, self._rule = store, run_id, task.inputs, task.rule
        self._splits = {"train": task.dataset.train, "val": task.dataset.val}
        self._described = dict[str, dict[str, tuple[str, Any]]]()
        self._recorded = set[tuple[str, str]]()

    def record(self, evaluation: Evaluation) -> None:
        split, rows = evaluation.split, [result.example for result in evaluation.results]
        new = [row for row in rows if (split, row.id) not in self._recorded]
        self._recorded |= {(split, row.id) for row in new}
        if split not in self._described:  # all rows at once: a few do not show which fields distinguish them
            whole = self._splits.get(split, rows)
            found = describe_rows(whole, self._inputs, self._rule)
            self._described[split] = dict(zip((row.id for row in whole), found, strict=True))
        known = self._described[split]
        described = [known.get(row.id) or describe_rows([row], self._inputs, self._rule)[0] for row in new]
        record_scored(self._store, self._run_id, split, evaluation.workflow.hash, described)


class TrainRows:
    """Stores the scores of train rows, once for each candidate and replica, so that a replay adds nothing.

    An optimizer scores a few train rows at a time. Rows of one candidate and replica are collected in one evaluation,
    whose own n and score stay empty. Only a row's score and kind of failure are stored; answers are in `calls`.
    """

    def __init__(self, store: Store, run_id: int, train: Sequence[Example], scored: ScoredRows):
        self.evaluations, self.scored = Evaluations(store, run_id), scored
        self.places = {example.id: (place, example) for place, example in enumerate(train)}

    def record(self, evaluation: Evaluation) -> None:
        """Queue the scores of train rows in an evaluation. Other rows are ignored."""
        seen = [(*self.places[r.example.id], r) for r in evaluation.results if r.example.id in self.places]
        rows = [(place, r.example.id, r.score, r.failure) for place, example, r in seen if example == r.example]
        if rows:
            self.scored.record(evaluation)
            self.evaluations.add_train(evaluation.workflow.hash, evaluation.replica, rows)

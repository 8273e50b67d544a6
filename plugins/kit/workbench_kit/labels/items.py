"""Answers to label, from a file of rows or from a run, in an order that reveals nothing.

Nothing in an item says which workflow wrote the answer, what a judge thinks of it, or what the right answer is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.base.hashing import digest
from workbench.errors import SpecError, StoreError, suggest
from workbench.evaluation import add_details, read_rows
from workbench.run import read_stored_source, winner_of
from workbench.spec import check_nodes
from workbench.store import Candidates, Store, kind_of, read_report
from workbench.task import graded_field, make_examples, read_rows as read_data
from workbench_kit.labels.judged import answer_key, place_in_draw

#: Fields of imported rows that would reveal other people's opinions, or are uninformative.
_HIDDEN = {"answer", "score", "scores", "comment", "messages", "source", "id", "group", "conversation", "user", "time"}


@dataclass(frozen=True)
class Item:
    """An answer to label. key: its hash; inputs: those of its row."""

    row: str
    key: str
    inputs: Mapping[str, Any]
    answer: Any


@dataclass(frozen=True)
class Answer:
    """A stored answer of a run, with its metric's result. side: 0 baseline, 1 winner, or the only one."""

    item: Item
    cluster: str
    side: int
    score: float


def order_items(answers: Sequence[tuple[str, Item]]) -> list[Item]:
    """Return the items, each once, in the order of the draw.

    Rows of one cluster are adjacent, and so are all answers to one row. The first clusters, however many, are a random
    sample, by which a judge is corrected; labels out of this order do not count there. answers: each with its cluster.
    """
    kept = {(item.row, item.key): (cluster, item) for cluster, item in answers}
    order = [
        (place_in_draw(cluster), digest([0, "row", item.row]), digest([0, "answer", item.row, item.key]), item)
        for cluster, item in kept.values()
    ]
    return [item for *_, item in sorted(order, key=lambda one: one[:3])]


def file_items(path: Path, field: str) -> list[tuple[str, Item]]:
    """Return the answers in a file of rows. field: holds the answer. Raise SpecError."""
    rows = make_examples(read_data(str(path.resolve()), path.parent, {}))
    found = [row for row in rows if field in row]
    if not found:
        names = list(rows[0]) if rows else []
        raise SpecError(
            f"no row of {path} has the field '{field}'", hint=f"Name it with --field. {suggest(field, names)}"
        )
    made = []
    for row in found:
        inputs = {name: value for name, value in row.fields.items() if name not in _HIDDEN and name != field}
        made.append((row.id, Item(row.id, answer_key({field: row[field]}, field), inputs, row[field])))
    return made


@dataclass(frozen=True)
class RunAnswers:
    """The answers of a run. labels: the file of labels in its workflow, if any. judged: whether a language model scored
    them."""

    run: str
    answers: Sequence[Answer]
    labels: Path | None
    judged: bool


def run_answers(store: Store, name: str, field: str | None = None) -> RunAnswers:
    """Return the scored answers of a run: for `optimize`, those of both sides on the sealed rows; for `eval`, its own.

    Runs no code of its file. field: of the prediction; None: the one that its metric reads.

    Raises:
        StoreError: there is no such run, or it stored no answers.
    """
    row = store.find_run(name)
    report = read_report(row)
    _, folder, started = read_stored_source(row)
    spec = check_nodes(started)
    field = field or graded_field(spec.metrics[0])
    sealed = kind_of(row) == "optimize"
    sides = [Candidates(store, row["id"]).find_baseline(), winner_of(report)] if sealed else [None]
    found: list[Answer] = []
    for side, candidate in enumerate(sides):
        rows = [r for r in read_rows(store, row, report, candidate) if not sealed or r["split"] == "test"]
        rows = [r for r in rows if r["score"] is not None and not r["replica"]]
        for one in add_details(store, row, rows):
            said = one["prediction"] or {}
            shown = said.get(field, said) if field else said
            shown = f"(no answer: {one['failure']})" if one["failure"] else shown
            given = {name: value for name, value in (one["inputs"] or {}).items() if name != field}  # that is the label
            item = Item(one["example"], answer_key(said, field), given, shown)
            found.append(Answer(item, one["cluster"] or one["example"], side, float(one["score"])))
    if not found:
        what = "no sealed rows: nothing beat the baseline, or the budget ended" if sealed else "no scored rows"
        what = what if report is not None else "no result yet"
        raise StoreError(f"run {row['run']} ({kind_of(row)}) has {what}")
    labels = Path(folder) / spec.proof.labels if spec.proof.labels is not None else None
    return RunAnswers(row["run"], found, labels, (report or {}).get("judge") is not None)

"""The train rows that an earlier run failed: which ones to show, and how often to request their tools.

Sources: WebRL (arXiv 2411.02337): new tasks from failed ones; Agent0 (arXiv 2511.16043): tasks solved about half of the
time teach most. Rows of val and test are never shown, nor train rows with their inputs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.base.hashing import digest
from workbench.errors import SpecError, StoreError
from workbench.kit.searching import draw_by_weight, frontier_weight
from workbench.run import prepare_stored, train_scores
from workbench.spec import PolicySpec
from workbench.store import Store, dumps
from workbench.task import Example, Task, normalised_inputs
from workbench_synthesize.settings import Failures, Kind

#: Fields of a row that are not part of the question, and characters of a row that are shown.
_LEFT_OUT, _LONGEST = frozenset({"id", "tools", "source", "result", "results", "template"}), 1200


@dataclass(frozen=True)
class FailedRow:
    """A failed row. told: its text in a request. names: the tools in its calls. calls: their number, if known."""

    id: str
    told: str
    question: str
    names: frozenset[str]
    calls: int | None
    weight: float


@dataclass(frozen=True)
class Failed:
    """The train rows that a run failed. weights: by tool, in [floor, 1]. policy: of the run's workflow."""

    run: str
    rows: Sequence[FailedRow]
    weights: Mapping[str, float]
    shown: int
    policy: PolicySpec

    def draw(self, rng: random.Random, kind: Kind, name: str) -> list[FailedRow]:
        """Draw rows to show in a request about a tool, weighted towards the frontier.

        Candidates are the tool's rows with a number of calls that fits the kind, else the tool's rows, else rows
        without known tools. For the kind `none`: rows without calls.
        """
        if kind == "none":
            fit = [r for r in self.rows if r.calls == 0]
        else:
            own = [r for r in self.rows if name in r.names]
            alike = [r for r in own if r.calls is not None and (r.calls > 1) == (kind != "simple")]
            fit = alike or own or [r for r in self.rows if not r.names and r.calls != 0]
        return [fit[place] for place in draw_by_weight(rng, [row.weight for row in fit], self.shown)]

    @property
    def digest(self) -> str:
        """A hash of everything that the requests depend on."""
        return digest([[r.id, r.told, r.weight] for r in self.rows] + [dict(self.weights)])


def load_failed(settings: Failures, base: Path, database: str, names: Sequence[str]) -> Failed:
    """Load the train rows that a run failed. Raises SpecError and StoreError, also if it failed none.

    Args:
        settings: of `failures:`.
        base: folder to which the path of the database is relative.
        database: the default run database.
        names: of the tools.
    """
    store = Store(base / settings.database if settings.database else database, create=False)
    try:
        row = store.find_run(settings.run)
        scores = train_scores(store, row["id"])
    finally:
        store.close()
    run, task = row["run"], prepare_stored(row)
    if row["data_hash"] is not None and task.data_hash != row["data_hash"]:
        raise StoreError(f"the data of run {run} have changed since, so its scores do not fit; run it again")
    if not scores:
        raise SpecError(
            f"run {run} has stored no scores of train rows",
            hint="Run workbench eval FILE --split train, and name the run that it prints.",
        )
    seen = [
        (example, _calls(example, settings.calls), scores[example.id])
        for example in _train_alone(task)
        if example.id in scores
    ]
    rows = [_failed(row, calls, attempts, task.inputs, names) for row, calls, attempts in seen if min(attempts) < 1]
    if not rows:
        raise SpecError(
            f"run {run} failed none of the {len(seen)} train rows that it tried and that are not in val or test",
            hint="Remove `failures`: there are no rows to imitate.",
        )
    weights = {name: _tool_weight(name, seen, settings.floor) for name in names}
    return Failed(run, rows, weights, settings.shown, task.spec.policy)


def _train_alone(task: Task) -> list[Example]:
    """The train rows whose inputs do not occur in val or test. A row shared by splits is never shown."""
    held = {normalised_inputs(e, task.inputs) for part in (task.dataset.val, task.dataset.test.open()) for e in part}
    return [e for e in task.dataset.train if normalised_inputs(e, task.inputs) not in held]


def _tool_weight(name: str, seen: Sequence[tuple[Example, Any, Sequence[float]]], floor: float) -> float:
    """The mean frontier weight of a tool's rows (0 for rows that were always solved), scaled to [floor, 1]."""
    own = [
        frontier_weight(sum(attempts), len(attempts)) if min(attempts) < 1 else 0.0
        for _, calls, attempts in seen
        if name in _names(calls)
    ]
    return floor + (1.0 - floor) * (sum(own) / len(own) if own else 0.0)


def _calls(example: Example, field: str) -> list[Any] | None:
    """The expected calls of a row; None if it has no readable ones."""
    value = example.get(field, None)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (json.JSONDecodeError, RecursionError):
            return None
    return [value] if isinstance(value, Mapping) else value if isinstance(value, list) else None


def _names(calls: Sequence[Any] | None) -> frozenset[str]:
    """The tool names in calls of the forms {"name": ...}, OpenAI's {"function": {"name": ...}} and BFCL's {NAME:
    {arguments}}."""
    given = [call for call in calls or () if isinstance(call, Mapping)]
    given = [inner if isinstance(inner := call.get("function"), Mapping) else call for call in given]
    found = [call.get("name", next(iter(call), None)) for call in given]
    return frozenset(name for name in found if isinstance(name, str))


def _failed(
    example: Example, calls: list[Any] | None, attempts: Sequence[float], inputs: Sequence[str], known: Sequence[str]
) -> FailedRow:
    fields = {k: v for k, v in example.fields.items() if k not in _LEFT_OUT}
    asked = [example[name] for name in inputs if name in example and name not in _LEFT_OUT]
    question = " ".join(value for value in asked if isinstance(value, str))
    return FailedRow(
        example.id,
        dumps(fields)[:_LONGEST],
        question,
        _names(calls) & set(known),
        None if calls is None else len(calls),
        max(frontier_weight(sum(attempts), len(attempts)), 1e-3),
    )


def split_question(question: str) -> frozenset[str]:
    """The words of a question, for the detection of duplicates."""
    return frozenset(re.findall(r"\w+", question.lower()))

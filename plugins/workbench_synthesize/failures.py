"""The train rows that an earlier run failed: which of them are shown, and how often their tools are requested.

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

from workbench.errors import SpecError, StoreError
from workbench.hashing import digest
from workbench.kit.curriculum import draw_by_weight, frontier_weight
from workbench.run import prepare_stored, train_scores
from workbench.spec import PolicySpec
from workbench.store import Store, dumps
from workbench.task import Example, Task, normalised_inputs
from workbench_synthesize.settings import Failures, Kind

#: Fields of a row that say nothing about what was asked, and characters of a row that are shown.
_LEFT_OUT, _LONGEST = frozenset({"id", "tools", "source", "result", "results", "template"}), 1200


@dataclass(frozen=True)
class FailedRow:
    """A failed row. told: what a request shows of it. names: of the tools that its calls name. calls: how many, if
    known."""

    id: str
    told: str
    question: str
    names: frozenset[str]
    calls: int | None
    weight: float


@dataclass(frozen=True)
class Failed:
    """What a run failed on train. weights: by tool, in [floor, 1]. policy: that of its workflow."""

    run: str
    rows: Sequence[FailedRow]
    weights: Mapping[str, float]
    shown: int
    policy: PolicySpec

    def draw(self, rng: random.Random, kind: Kind, name: str) -> list[FailedRow]:
        """Rows to show in a request about a tool, those of the frontier more often: rows of its own with as many calls
        as the kind has; else rows of its own; else rows that name no tool that is known. For `none`, rows without
        calls."""
        if kind == "none":
            fit = [r for r in self.rows if r.calls == 0]
        else:
            own = [r for r in self.rows if name in r.names]
            alike = [r for r in own if r.calls is not None and (r.calls > 1) == (kind != "simple")]
            fit = alike or own or [r for r in self.rows if not r.names and r.calls != 0]
        return [fit[place] for place in draw_by_weight(rng, [row.weight for row in fit], self.shown)]

    @property
    def digest(self) -> str:
        """Changes with whatever the requests hang on."""
        return digest([[r.id, r.told, r.weight] for r in self.rows] + [dict(self.weights)])


def load_failed(settings: Failures, base: Path, database: str, names: Sequence[str]) -> Failed:
    """What a run failed on train; names: of the tools, base: where the database's own path starts. Raises SpecError and
    StoreError, also where nothing was failed."""
    store = Store(base / settings.database if settings.database else database, create=False)
    try:
        row = store.find_run(settings.run, evals=True)
        scores = train_scores(store, row["id"])
    finally:
        store.close()
    run, task = row["run"], prepare_stored(row)
    if row["data_hash"] is not None and task.data_hash != row["data_hash"]:
        raise StoreError(f"the data of run {run} have changed since, so its scores are of other rows; run it again")
    if not scores:
        raise SpecError(
            f"run {run} has kept no score of a train row",
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
            f"run {run} failed none of the {len(seen)} train rows that it tried and that val and test do not have",
            hint="There is nothing to make rows from: leave failures out.",
        )
    weights = {name: _tool_weight(name, seen, settings.floor) for name in names}
    return Failed(run, rows, weights, settings.shown, task.spec.policy)


def _train_alone(task: Task) -> list[Example]:
    """Train rows whose inputs no row of val or test has: where splits share a row, it stays out of every request."""
    held = {normalised_inputs(e, task.inputs) for part in (task.dataset.val, task.dataset.test.open()) for e in part}
    return [e for e in task.dataset.train if normalised_inputs(e, task.inputs) not in held]


def _tool_weight(name: str, seen: Sequence[tuple[Example, Any, Sequence[float]]], floor: float) -> float:
    """The mean over a tool's rows, of which those that were always solved count nothing; at least the floor."""
    own = [
        frontier_weight(sum(attempts), len(attempts)) if min(attempts) < 1 else 0.0
        for _, calls, attempts in seen
        if name in _names(calls)
    ]
    return floor + (1.0 - floor) * (sum(own) / len(own) if own else 0.0)


def _calls(example: Example, field: str) -> list[Any] | None:
    """The calls that a row wants; None where it has none that can be read."""
    value = example.get(field, None)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (json.JSONDecodeError, RecursionError):
            return None
    return [value] if isinstance(value, Mapping) else value if isinstance(value, list) else None


def _names(calls: Sequence[Any] | None) -> frozenset[str]:
    """Names of the tools of {"name": ...}, of OpenAI's {"function": {"name": ...}} and of BFCL's {NAME:
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


def words_of(question: str) -> frozenset[str]:
    """The words of a question, by which duplicates are found."""
    return frozenset(re.findall(r"\w+", question.lower()))

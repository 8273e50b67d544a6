"""A workflow of the gallery, changed and run on its scripted rows, and searched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.gallery_scripts import CASES
from tests.helpers.gallery_speech import Line, Speaker
from tests.helpers.scripted import SeeingScript, run_rows
from workbench.api import optimize
from workbench.ledger import Ledger
from workbench.run import Options, prepare
from workbench.runtime import Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.study import Evaluation, Evaluator
from workbench.workflow import ExampleRun, Workflow

GALLERY = Path(__file__).parents[2] / "workflows" / "gallery"
Rows = list[tuple[dict[str, Any], dict[str, Any]]]


class Tried:
    """A workflow on rows with a new journal: which were right, the outcomes, and the requests."""

    def __init__(self, workflow: Workflow, table: Sequence[Line], rows: Rows, folder: Path):
        self.workflow, self.script = workflow, SeeingScript(Speaker(table))
        database = folder / f"{len(list(folder.glob('*.db')))}.db"
        self.outcomes: list[ExampleRun] = run_rows(
            workflow, [row for row, _ in rows], self.script, database, roles=["user"]
        )
        self.right = [
            all(str(outcome.prediction.get(field)) == value for field, value in expected.items())
            for (_, expected), outcome in zip(rows, self.outcomes, strict=True)
        ]

    def notes(self, node: str) -> list[dict[str, Any]]:
        return [next(span.notes for span in run.trace.spans if span.node == node) for run in self.outcomes]


def tried(
    name: str,
    folder: Path,
    change: dict[str, Any] | None = None,
    rows: Rows | None = None,
    table: Sequence[Line] | None = None,
) -> Tried:
    """A file of the gallery, changed, on its rows or on others, spoken by its table or by another."""
    case, workflow = CASES[f"{name}.yaml"], prepare(GALLERY / f"{name}.yaml")[2].workflow.patched(change or {})
    return Tried(workflow, table or case.table, rows or list(case.rows), folder)


@dataclass(frozen=True)
class Scored:
    """A file's own sealed rows, scored by its own metric, and who spoke."""

    evaluation: Evaluation
    speaker: Speaker

    @property
    def right(self) -> float:
        """The share of rows that are right; a world whose score shrinks with each turn never gives more than 0.9."""
        return sum(score > 0.8 for score in self.evaluation.scores) / len(self.evaluation.scores)


def scored(name: str, folder: Path, change: dict[str, Any] | None = None) -> Scored:
    """A file of the gallery on its own sealed rows, one after the other. change: settings of nodes, or of the file."""
    nodes = {address: value for address, value in (change or {}).items() if address.startswith("nodes.")}
    sets = [(address, value) for address, value in (change or {}).items() if address not in nodes]
    task = prepare(GALLERY / f"{name}.yaml", sets)[2]
    speaker, spec = Speaker(CASES[f"{name}.yaml"].table), lm_spec({"model": "openai/scripted", "attempts": 1})

    async def course() -> Evaluation:
        store = Store(folder / f"{len(list(folder.glob('*.db')))}.db")
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100_000}))
        roles = dict.fromkeys(("user", "judge"), spec)
        runtime = Runtime(ledger, spec, roles, SeeingScript(speaker), task.spec.policy)
        try:
            evaluator = Evaluator(runtime, task.metric, 1, source=task.source)
            return await evaluator.evaluate(task.workflow.patched(nodes), [*task.dataset.test.open()])
        finally:
            await runtime.aclose()
            ledger.close()
            store.close()

    return Scored(asyncio.run(course()), speaker)


def searched(name: str, address: str, poor: Any, folder: Path) -> Any:
    """The report of the file's own search, begun with a poor value; its rows are the scripted ones, asked politely."""
    case, rows = CASES[f"{name}.yaml"], []
    for number in range(24):
        row, expected = case.rows[number % len(case.rows)]
        gold = {"gold_sql": expected["sql"]} if "sql" in expected else {k: expected[k] for k in expected.keys() - row}
        rows.append({**row, "question": f"{row['question']} {'please ' * (number + 1)}".strip(), **gold})
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    data = {"file": str(folder / "rows.jsonl"), "split": {"train": 6, "val": 6, "test": 12}}
    return optimize(
        GALLERY / f"{name}.yaml",
        settings={"data": data, address: poor, "budget.calls": 20_000},
        options=Options(allow_unproved=True, out=str(folder / "optimized.yaml")),
        database=folder / "run.db",
        pool=SeeingScript(Speaker(case.table)),
    )

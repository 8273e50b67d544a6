"""A workflow of the gallery, changed, on its own sealed rows or on others, and searched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
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
from workbench.workflow import ExampleRun, NodeKind, Span, Workflow

GALLERY = Path(__file__).parents[2] / "workflows" / "gallery"
#: Files whose design is what their optimizer writes: it runs first.
LEARNED = {"contest", "forge", "llm_heuristics", "rl_of_thoughts"}
Rows = Sequence[tuple[dict[str, Any], dict[str, Any]]]


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


def tried(
    name: str,
    folder: Path,
    rows: Rows,
    change: dict[str, Any] | None = None,
    table: Sequence[Line] | None = None,
) -> Tried:
    """A file of the gallery, changed, on rows with what is expected, spoken by its table or by another."""
    workflow = prepare(GALLERY / f"{name}.yaml")[2].workflow.patched(change or {})
    return Tried(workflow, table or CASES[f"{name}.yaml"].table, rows, folder)


class Scored:
    """A file's own sealed rows, one after the other, scored by its own metric.

    change: settings of nodes, or of the file; without optimizers a file that learns stays as it is. split: of the rows;
    on val, where the baseline is measured, no file has learned.
    """

    def __init__(self, name: str, folder: Path, change: dict[str, Any] | None = None, split: str = "test"):
        nodes = {address: value for address, value in (change or {}).items() if address.startswith("nodes.")}
        sets = [(address, value) for address, value in (change or {}).items() if address not in nodes]
        self.task = prepare(GALLERY / f"{name}.yaml", sets)[2]
        self.workflow = self.task.workflow.patched(nodes)
        self.rows = [*self.task.dataset.test.open()] if split == "test" else [*self.task.dataset.val]
        if name in LEARNED and self.task.spec.optimize and split == "test":
            found = searched(name, {"optimize": self.task.spec.optimize}, folder)
            self.workflow = found.winner.patched(nodes)
        self.speaker = Speaker(CASES[f"{name}.yaml"].table)
        self.script, self.database = SeeingScript(self.speaker), folder / f"{len(list(folder.glob('*.db')))}.db"
        self.evaluation = asyncio.run(self._run())

    async def _run(self) -> Evaluation:
        store, spec = Store(self.database), lm_spec({"model": "openai/scripted", "attempts": 1})
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100_000}))
        runtime = Runtime(ledger, spec, dict.fromkeys(("user", "judge"), spec), self.script, self.task.spec.policy)
        try:
            evaluator = Evaluator(runtime, self.task.metric, 1, source=self.task.source)
            return await evaluator.evaluate(self.workflow, self.rows, traces=True)
        finally:
            await runtime.aclose()
            store.close()

    @property
    def right(self) -> float:
        """The share of rows that are right; a world whose score shrinks with each turn never gives more than 0.9."""
        return sum(score > 0.8 for score in self.evaluation.scores) / len(self.evaluation.scores)

    @property
    def spans(self) -> list[Span]:
        return [span for result in self.evaluation.results if result.trace for span in result.trace.spans]

    def told(self, words: str) -> list[str]:
        """The prompts whose system message has these words."""
        asked = [request.messages for request in self.script.requests]
        return [str(messages[-1]["content"]) for messages in asked if words in str(messages[0]["content"])]


def inside(workflow: Workflow) -> Iterator[tuple[str, NodeKind]]:
    """Each node that takes part, and those inside it, with its path as spans name it."""

    def walk(path: str, node: NodeKind) -> Iterator[tuple[str, NodeKind]]:
        yield path, node
        for name, child in node.children().items():
            yield from walk(f"{path}.{name}", child)

    for name, node in workflow.enabled_nodes.items():
        yield from walk(name, node)


def members(node: NodeKind) -> set[str]:
    """Of a team."""
    config: Any = node.config
    return {*getattr(config, "members", ())}


def searched(name: str, settings: dict[str, Any], folder: Path) -> Any:
    """The report of the file's own optimizers on its own rows."""
    number = len(list(folder.glob("search*.db")))
    return optimize(
        GALLERY / f"{name}.yaml",
        settings={**settings, "budget.calls": 100_000},
        options=Options(allow_unproved=True, out=str(folder / f"{number}.yaml")),
        database=folder / f"search{number}.db",
        pool=SeeingScript(Speaker(CASES[f"{name}.yaml"].table)),
    )

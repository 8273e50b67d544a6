"""Runs the agents of a file on a few rows, to see what they send: `workbench slots`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.concurrency import run_in_loop
from workbench.ledger import Ledger
from workbench.lm import LMPool
from workbench.run import add_started_run
from workbench.runtime import Runtime
from workbench.store import RunRecord, Store
from workbench.study import Evaluator, observe_nodes
from workbench.task import Task
from workbench.workflow import ExampleRun, Workflow
from workbench_external.asking import Named


def observe_file(
    task: Task, file: Path, database: Path, rows: int, pool: LMPool | None = None
) -> tuple[Workflow, Sequence[ExampleRun], str]:
    """(the workflow with its slots, the runs, what they cost). Calls are recorded, so that a search with `cache: true`
    need not pay for them. Raises SpecError and BudgetSpent."""
    store = Store(database)
    try:
        _, run_id = add_started_run(store, "slots", file, task, {"sets": [], "out": None})
        ledger = Ledger(store, run_id, task.spec.budget, reuse=task.spec.cache)

        async def course() -> tuple[Workflow, Sequence[ExampleRun], str]:
            runtime = Runtime.of_spec(task.spec, ledger, pool=pool)
            try:
                evaluator = Evaluator(runtime, task.metric, task.spec.concurrency, source=task.source)
                workflow, runs = await observe_nodes(task, evaluator, rows)
                return workflow, runs, f"{ledger.paid.calls} calls, ${ledger.paid.usd:.4f}"
            finally:
                await runtime.aclose()

        found = run_in_loop(course())
        RunRecord(store, run_id).end("finished")
        return found
    finally:
        ledger.close()
        store.close()


def describe_calls(runs: Sequence[ExampleRun]) -> list[str]:
    """Lines on the models that the agents named, and on what was refused in rows that went well."""
    nodes: dict[str, Named] = {}
    refused: list[str] = []
    for run in runs:
        for span in run.trace.spans:
            if "models" in span.notes:
                nodes.setdefault(span.node, Named()).add(span.notes["models"])
            if "refused" in span.notes and span.error is None:
                refused.append(f"row {run.trace.example}: '{span.node}' {span.notes['refused']}")
    return [f"'{node}': {named.describe()}" for node, named in nodes.items()] + refused

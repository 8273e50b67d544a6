"""Runs one example and shows everything: `workbench run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.concurrency import run_in_loop
from workbench.errors import BudgetSpent, SpecError, suggest
from workbench.inference import read_workflow
from workbench.lm import LMPool
from workbench.run import prepare
from workbench.runtime import Consent, Run, SandboxChoice
from workbench.spec import Source
from workbench.store import Store, add_run, dumps, new_run_name
from workbench.study import Evaluator, Result
from workbench.task import Dataset, Example, Score, SealedRows, Task


def run_single(
    path: Path | Source,
    inputs: dict[str, str] | None,
    index: int | None,
    sets: Sequence[tuple[str, Any]],
    database: str,
    consent: Consent | None = None,
    sandbox: SandboxChoice | None = None,
    pool: LMPool | None = None,
) -> dict[str, Any]:
    """Run a workflow on one example.

    Args:
        path: the workflow file, or one already read.
        inputs: values by field; None takes a row of val, and scores it.
        index: number of that row, from 0; None: the first.
        sets: changed settings of the file, as (address, value).
        database: path of the run database.
        consent: asks the user to allow a tool call if the policy says `ask`.
        sandbox: default: the one named in the environment.
        pool: replaces the plugins' language models in tests.

    Returns:
        A dict of row, prediction, failure, message, score and feedback (None without a row), scores by further
        metrics, cost, spans (each call with its prompt) and spent.

    Raises:
        SpecError: the file or the inputs are wrong.
        BudgetSpent: the budget ended before the example did.
    """
    task, example = _task_of_inputs(path, inputs, sets) if inputs is not None else _task_of_row(path, index or 0, sets)

    choice = sandbox or SandboxChoice.from_environment()

    async def main() -> dict[str, Any]:
        with Store(database) as store:
            name = new_run_name()
            run_id = add_run(
                store,
                run=name,
                name=task.spec.name,
                status="run",
                kind="run",
                spec=task.source.text,
                options=dumps({"sets": []}),
                data_hash=task.data_hash,
                seed=task.spec.seed,
            )
            opened = {"pool": pool, "sandbox": choice, "consent": consent, "data_files": task.data_files}
            async with Run(store, run_id, name, task.spec, working="run", **opened) as run:
                evaluator = Evaluator(run.runtime, task.metric, 1, source=task.source, further=task.further_metrics)
                try:
                    result = await evaluator.run_one(evaluator.program(task.workflow), example, traces=True)
                except BudgetSpent:
                    run.ledger.bill.check_answered()
                    raise
                bill = {"spent": run.ledger.summary(), "warnings": run.ledger.warnings()}
                return {**_as_dict(result, scored=inputs is None), **bill}

    return run_in_loop(main())


def _as_dict(result: Result, scored: bool) -> dict[str, Any]:
    spans = []
    for span in result.trace.spans if result.trace else ():
        shown = span.as_dict()
        for call, record in zip(shown["calls"], span.calls, strict=True):
            call["messages"] = [dict(message) for message in record.messages]
        spans.append(shown)
    return {
        "row": dict(result.example.fields),
        "prediction": dict(result.prediction),
        "failure": result.failure,
        "message": result.message,
        "score": result.score if scored else None,
        "feedback": result.feedback if scored else None,
        "scores": dict(result.scores) if scored else {},
        "cost": {"calls": result.calls, "tokens": result.tokens, "usd": result.usd, "seconds": result.seconds},
        "spans": spans,
    }


def _task_of_row(path: Path | Source, index: int, sets: Sequence[tuple[str, Any]]) -> tuple[Task, Example]:
    task = prepare(path, sets)[2]
    if not 0 <= index < len(task.dataset.val):
        raise SpecError(
            f"val has no row {index}", hint=f"Name one from 0 to {len(task.dataset.val) - 1} with --example."
        )
    return task, task.dataset.val[index]


def _task_of_inputs(
    path: Path | Source, inputs: Mapping[str, str], sets: Sequence[tuple[str, Any]]
) -> tuple[Task, Example]:
    """Make the task of a file to run on given inputs, which needs no data and no metric."""
    spec, source, workflow = read_workflow(path, sets)

    def unused(example: Any, prediction: Any, trace: Any = None) -> Score:
        return Score(0.0)  # never shown

    dataset = Dataset((), (), SealedRows(()))
    task = Task(spec, source, workflow, dataset, unused, tuple(workflow.input_fields))
    for name in task.inputs:
        if name not in inputs:
            raise SpecError(f"the input '{name}' is missing", hint=f"Add --input {name}=...")
    for name in inputs:
        if name not in task.inputs:
            raise SpecError(f"the workflow reads no input '{name}'", hint=suggest(name, task.inputs))
    return task, Example("command-line", inputs)

"""Runs one example, or scores one split, without optimizing: `workbench run` and `workbench eval`."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.concurrency import run_in_loop
from workbench.errors import BudgetSpent, SpecError, suggest
from workbench.inference import read_workflow
from workbench.ledger import Ledger
from workbench.proof import interval, record_test, sealed_row_keys
from workbench.run.start import prepare
from workbench.run.stored_scores import TrainRows
from workbench.runtime import Consent, Runtime, SandboxChoice
from workbench.spec import outer_settings
from workbench.store import RunRecord, Store, add_run, dumps
from workbench.study import Evaluation, Evaluator, Result, unanswered_error
from workbench.task import Dataset, Example, Score, SealedRows, Task


def run_single(
    path: Path,
    inputs: dict[str, str] | None,
    index: int | None,
    sets: Sequence[tuple[str, Any]],
    database: str,
    consent: Consent | None = None,
    sandbox: SandboxChoice | None = None,
) -> dict[str, Any]:
    """Run a workflow on one example.

    Args:
        path: the workflow file.
        inputs: values by field; None takes a row of val.
        index: number of that row, from 0; None: the first.
        sets: changed settings of the file, as (address, value).
        database: path of the run database.
        consent: asks the user to allow a tool call, where the policy says `ask`.
        sandbox: default: the one that the environment names.

    Returns:
        A dict of row, prediction, failure, message, spans and spent.

    Raises:
        SpecError: the file or the inputs are wrong.
        BudgetSpent: the budget ended before the example did.
    """
    if inputs is not None:
        task = _task_without_rows(path, sets)
        for name in task.inputs:
            if name not in inputs:
                raise SpecError(f"the input '{name}' is missing", hint=f"Add --input {name}=...")
        for name in inputs:
            if name not in task.inputs:
                raise SpecError(f"the workflow reads no input '{name}'", hint=suggest(name, task.inputs))
        example = Example("command-line", inputs)
    else:
        task = prepare(path, sets)[2]
        if not 0 <= (index or 0) < len(task.dataset.val):
            raise SpecError(
                f"val has no row {index or 0}", hint=f"Name one from 0 to {len(task.dataset.val) - 1} with --example."
            )
        example = task.dataset.val[index or 0]

    async def job(evaluator: Evaluator) -> dict[str, Any]:
        outcome = await evaluator.program(task.workflow).run(example)
        return {
            "row": dict(example.fields),
            "prediction": dict(outcome.prediction),
            "failure": outcome.failure,
            "message": outcome.message,
            "spans": [span.as_dict() for span in outcome.trace.spans],
        }

    return with_evaluator(task, database, "run", job, consent, sandbox=sandbox)


def _task_without_rows(path: Path, sets: Sequence[tuple[str, Any]]) -> Task:
    """The task of a file that is run on given inputs: it needs no data and no metric."""
    spec, source, workflow = read_workflow(path, sets)

    def unused(example: Any, prediction: Any, trace: Any = None) -> Score:
        raise AssertionError("a single run is not scored")

    dataset = Dataset((), (), SealedRows(()), (), "", "")
    return Task(spec, source, workflow, dataset, unused, tuple(workflow.input_fields))


def evaluate_file(
    path: Path,
    split: str,
    sets: Sequence[tuple[str, Any]],
    database: str,
    sandbox: SandboxChoice | None = None,
) -> dict[str, Any]:
    """Score a workflow on one split. The scores of train rows are stored, as by a run of `optimize`.

    Returns a dict of run, split, score, ci95, n, failures, cost, warnings and spent. Raises SpecError for a wrong file
    or an empty split, BudgetSpent if the budget ends early, and LMError if no row was answered.
    """
    _, _, task, _ = prepare(path, sets)
    rows = task.dataset.test.open() if split == "test" else getattr(task.dataset, split)
    if not rows:
        raise SpecError(f"{split} has no rows", hint="; ".join(task.dataset.warnings) or "Name another with --split.")

    async def job(evaluator: Evaluator) -> dict[str, Any]:
        ledger, program = evaluator.runtime.ledger, evaluator.program(task.workflow)
        run = RunRecord(ledger.store, ledger.run_id).find_name()
        kept = TrainRows(ledger.store, ledger.run_id, rows if split == "train" else ())
        done = 0

        async def scored(index: int) -> Result:
            nonlocal done
            result = await evaluator.run_one(program, rows[index])
            kept.record(Evaluation(task.workflow, split, (result,), False))
            done += 1
            return result

        try:
            evaluation = Evaluation(task.workflow, split, tuple(await evaluator.gather(len(rows), scored)), True)
        except BudgetSpent as error:
            if split == "train" and done:
                error.args = (f"{error}. The scores of {done} of {len(rows)} rows are kept as run {run}",)
            raise
        if (error := unanswered_error(evaluation)) is not None:
            raise error
        if split == "test":  # a later proof on these rows is a repeated test
            record_test(ledger.store, ledger.run_id, task.workflow.hash, sealed_row_keys(task, rows))
        return {"run": run, **_summary(evaluation), "warnings": evaluator.faults.lines()}

    stored = {"sets": [list(s) for s in sets], "of": str(path.resolve()), "outside": outer_settings(task.source)}
    return with_evaluator(task, database, "eval", job, options=stored, sandbox=sandbox)


def _summary(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "split": evaluation.split,
        "score": evaluation.score,
        "ci95": list(interval(evaluation.scores)),
        "n": len(evaluation.results),
        "failures": evaluation.failures,
        "cost": {name: value for name, value in evaluation.objectives.items() if name != "score"},
    }


def with_evaluator(
    task: Task,
    database: str,
    kind: str,
    job: Callable[[Evaluator], Awaitable[dict[str, Any]]],
    consent: Consent | None = None,
    options: Mapping[str, Any] | None = None,
    sandbox: SandboxChoice | None = None,
) -> dict[str, Any]:
    """Run a job with a ledger of its own, so that its calls are recorded and billed. Adds `spent` to its result."""

    async def course() -> dict[str, Any]:
        store = Store(database)
        try:
            run_id = add_run(
                store,
                run=secrets.token_hex(4),
                name=task.spec.name,
                status=kind,
                spec=task.source.text,
                options=dumps(options or {"sets": []}),
                data_hash=task.data_hash,
                seed=task.spec.seed,
            )
            ledger = Ledger(store, run_id, task.spec.budget, reuse=task.spec.cache)
            runtime = Runtime(
                ledger,
                task.spec.lm,
                task.spec.roles,
                policy=task.spec.policy,
                consent=consent,
                sandbox_choice=sandbox or SandboxChoice.from_environment(),
                timeout=task.spec.timeout,
            )
            try:
                result = await job(Evaluator(runtime, task.metric, task.spec.concurrency, source=task.source))
            except BudgetSpent:
                ledger.bill.check_answered()
                raise
            finally:
                await runtime.aclose()
                ledger.close()
            return {**result, "spent": ledger.summary()}
        finally:
            store.close()

    return run_in_loop(course())

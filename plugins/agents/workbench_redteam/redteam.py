"""A run of attacks: each row of a split without attacks, and under each attack at the same seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.base.concurrency import run_in_loop
from workbench.errors import BudgetSpent, SpecError
from workbench.lm import LMPool
from workbench.run import evaluated_lms, lms_not_ready, place_of, prepare
from workbench.runtime import Run, SandboxChoice, make_crew
from workbench.spec import Source
from workbench.store import Store, dumps
from workbench.study import Evaluation, Evaluator, PerturbedRows, unanswered_error
from workbench.task import Task
from workbench_redteam.attacked_context import UnderAttack
from workbench_redteam.outcomes import AttackedRow, judge
from workbench_redteam.report import RedTeamReport

#: Statuses of a run: while it is running, and when it is done.
WORKING, DONE = "attacking", "attacked"
OnRow = Callable[[int, int], None]


@dataclass(frozen=True)
class RedTeamOptions:
    """Options besides the workflow file. split: train or val; sealed rows are for the proof. most: rows; None: all."""

    sets: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    split: str = "val"
    most: int | None = None
    sandbox: SandboxChoice = field(default_factory=SandboxChoice.from_environment)


def red_team(
    path: str | Path | Source,
    *,
    options: RedTeamOptions | None = None,
    database: str | Path = "workbench.db",
    pool: LMPool | None = None,
    on_row: OnRow = lambda done, of: None,
) -> RedTeamReport:
    """Run the rows of a split with and without the attacks of a workflow file.

    The same call again pays nothing, and a killed one continues.

    Args:
        path: the workflow file.
        options: of the run.
        database: path of the run database.
        pool: replaces the plugins' language models, for tests.
        on_row: called after each row with the number of rows done, and of all.

    Raises:
        SpecError: the file is wrong, has no attacks or no rows, or has no place for an attack.
        LMError: no row was answered.
        StoreError: the database cannot be used.
    """
    options = options or RedTeamOptions()
    _, source, task, _ = prepare(path, options.sets)
    if not task.attacks:
        raise SpecError("there are no attacks", hint="Name a file with --attacks, or write attacks: in the workflow.")
    rows = getattr(task.dataset, options.split)[: options.most]
    if not rows:
        raise SpecError(f"{options.split} has no rows", hint="Name the other split with --split.")
    pool = pool or LMPool()
    for error in lms_not_ready(evaluated_lms(task), pool, task.spec.budget.usd):
        raise source.locate(error) if isinstance(error, SpecError) else error
    with Store(database) as store:
        return run_in_loop(_attack(task, rows, _run_of(store, place_of(path), task, options, pool), options, on_row))


def _run_of(store: Store, place: Path, task: Task, options: RedTeamOptions, pool: LMPool) -> Run:
    """Return the run with these options on the same data and attacks, or a new one."""
    named = {"file": str(place), "data": task.data_hash, "referred": task.external_hash}
    sets = [list(one) for one in options.sets if not one[0].startswith("budget.")]  # a larger budget continues it
    given = dumps({**named, "sets": sets, "split": options.split, "most": options.most})
    stored: dict[str, Any] = {"name": task.spec.name, "kind": "redteam", "spec": task.source.text, "options": given}
    opened = {"pool": pool, "sandbox": options.sandbox, "data_files": task.data_files}
    return Run.found(store, (WORKING, DONE), task.spec, stored, **opened)


async def _attack(task: Task, rows: Any, run: Run, options: RedTeamOptions, on_row: OnRow) -> RedTeamReport:
    """Run all rows, several at once, and store the report."""
    run.runtime.elsewhere = make_crew(task, run.runtime, lambda *_, **__: None)
    evaluator = Evaluator(run.runtime, task.metric, task.spec.concurrency, source=task.source)
    results: list[AttackedRow | None] = [None] * len(rows)

    async def job(index: int) -> None:
        clean = await evaluator.run_one(evaluator.program(task.workflow), rows[index], traces=True, split=options.split)
        found = (await perturbed.run(clean, options.split)).perturbed
        attacked = {name: judge(attack, clean, found[name]) for name, attack in task.attacks.items()}
        results[index] = AttackedRow(replace(clean, trace=None), attacked)
        on_row(sum(one is not None for one in results), len(rows))

    async with run:
        if run.resumed:
            run.ledger.bill.forget_unanswered()  # calls that failed because of a server are repeated
        attacks = {name: UnderAttack(attack) for name, attack in task.attacks.items()}
        perturbed = PerturbedRows(evaluator, task.workflow, attacks)
        try:
            await evaluator.gather(len(rows), job)
        except BudgetSpent:
            run.ledger.bill.check_answered()
        evaluator.check_metric(len(rows))
        done = [one for one in results if one is not None]
        clean = tuple(one.clean for one in done)
        if (error := unanswered_error(Evaluation(task.workflow, options.split, clean, True))) is not None:
            run.ledger.bill.forget_unanswered()
            raise error
        warnings = [*run.runtime.warnings(), *run.ledger.warnings()]
        report = RedTeamReport(run.name, task, options.split, len(rows), done, run.ledger.summary(), warnings)
        run.record.end_with_report(DONE, {**report.as_dict(), "lines": report.lines()}, run.ledger.seconds)
    return report

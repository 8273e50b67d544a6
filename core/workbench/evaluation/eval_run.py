"""The run of an evaluation: an unchanged workflow on the rows of a split. Rows are stored once scored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.base.concurrency import run_in_loop
from workbench.base.files import disk_warnings
from workbench.errors import BudgetSpent, Interrupted, StoreError, WorkbenchError
from workbench.evaluation.eval_report import EvalReport, summarise
from workbench.evaluation.splits import check_rows, default_split, describe_rest, split_rows
from workbench.ledger import no_price_line
from workbench.lm import LMPool
from workbench.proof import Report, evaluated_name
from workbench.run import (
    Announcer,
    Listener,
    Model,
    Options,
    RowKeys,
    RunInfo,
    as_stored_row,
    check_lms_ready,
    check_trackers,
    end_evaluation,
    evaluated_lms,
    place_of,
    prepare,
    prepare_stored,
    resume,
    settings_to_compare,
    started_run,
)
from workbench.runtime import Draw, Run, SandboxChoice, make_crew
from workbench.spec import Source, outer_settings
from workbench.store import (
    Candidates,
    Evaluations,
    RunRecord,
    SealedTests,
    SeenRows,
    Store,
    dumps,
    kind_of,
    read_options,
)
from workbench.study import Evaluation, Evaluator, Result, unanswered_error
from workbench.task import Task, describe_rows


@dataclass
class EvalOptions:
    """Options of the command line in addition to the workflow file.

    split: train, val, test or all; None: val, or whatever exists. repeats: runs per row. gate: the limits by which the
    command line judges the score, stored for a resumed run.
    """

    sets: list[tuple[str, Any]] = field(default_factory=list)
    split: str | None = None
    repeats: int = 1
    sandbox: SandboxChoice = field(default_factory=SandboxChoice.from_environment)
    label: str = ""
    gate: dict[str, Any] = field(default_factory=dict[str, Any])

    def as_dict(self) -> dict[str, Any]:
        """Return the options to store, without permission to run code without a boundary: each process needs its
        own."""
        return {
            "sets": [list(s) for s in self.sets],
            "split": self.split,
            "repeats": self.repeats,
            "sandbox": self.sandbox.name,
            "label": self.label,
            "gate": self.gate,
        }


def evaluate(
    path: str | Path | Source,
    *,
    options: EvalOptions | None = None,
    database: str | Path = "workbench.db",
    listener: Listener | None = None,
    pool: LMPool | None = None,
    spent: BudgetSpent | None = None,
) -> EvalReport:
    """Score a workflow file on the rows of a split. Rows, predictions, scores, feedback and prompts are stored.

    Args:
        path: the workflow file, or one already read or made.
        options: additions from the command line.
        database: path of the run database.
        listener: called as listener(event, data) with every event.
        pool: replaces the plugins' language models in tests and notebooks.
        spent: given if earlier evaluations used up the budget; nothing is sent.

    Raises:
        SpecError: the file or the options are wrong, the split is empty, or the metric fails on each of the first rows.
        LMError: no row was answered.
        StoreError: the database cannot be used.
    """
    options = options or EvalOptions()
    _, source, task, _ = prepare(path, options.sets)
    left_out = [] if options.split else describe_rest(task)
    options = replace(options, split=options.split or default_split(task))
    check_rows(task, options.split, options.repeats)
    with source.locating():
        check_trackers(task.spec.track)
    pool = pool or LMPool()
    check_lms_ready(task, evaluated_lms(task), pool)
    with Store(database) as store:
        stored = {**options.as_dict(), "referred": task.external_hash, "outside": outer_settings(source)}
        stored["inputs"] = [*task.inputs]  # the fields of a row that the workflow reads, for later queries
        with started_run(store, "eval", place_of(path), task, stored) as (run, run_id):
            evaluation = EvalRun(store, run_id, run, task, options, listener, pool=pool)
            evaluation.ledger.stopping = spent
            evaluation.warnings += left_out
            return run_in_loop(evaluation.go())


def resume_evaluation(
    run: str,
    *,
    options: EvalOptions | None = None,
    database: str | Path = "workbench.db",
    listener: Listener | None = None,
    pool: LMPool | None = None,
) -> EvalReport:
    """Resume an evaluation that was killed, interrupted or failed, whose budget ended, or that got no answer for some
    rows. Rows without an answer are asked again; answers are not paid again. The metric scores all rows again, so it
    may have been corrected.

    options: only `sets` and `sandbox` count; the sets are added to those of the start. Other arguments and errors: as
    for `evaluate`.
    """
    options = options or EvalOptions()
    with Store(database, create=False) as store:
        row = store.find_run(run)
        if kind_of(row) != "eval" or row["file"] is None:
            raise StoreError(f"run {row['run']} is not an evaluation that can be resumed")
        stored = read_options(row)
        if missing := {"split", "repeats"} - stored.keys():
            raise StoreError(f"the options of run {row['run']} (table runs) are damaged: they have no {min(missing)}")
        task = prepare_stored(row, options.sets)
        if task.data_hash != row["data_hash"]:
            raise StoreError(f"the data of run {row['run']} have changed since it started; run a new evaluation")
        if options.sets:
            stored["sets"] = [*stored["sets"], *options.sets]
            RunRecord(store, row["id"]).replace_options(dumps(stored))
        sandbox = replace(options.sandbox, name=options.sandbox.name or stored.get("sandbox"))
        merged = EvalOptions(stored["sets"], stored["split"], stored["repeats"], sandbox, stored.get("label", ""))
        check_rows(task, merged.split, merged.repeats)
        evaluation = EvalRun(store, row["id"], row["run"], task, merged, listener, row["seconds"], pool)
        if stored.get("referred") != task.external_hash:
            evaluation.warnings.append(
                "a file that the workflow refers to has changed since the run started: the metric scores all rows in "
                "its current form, and earlier tool results are kept"
            )
        return run_in_loop(evaluation.go())


def resume_run(
    run: str,
    *,
    options: Options | None = None,
    database: str | Path = "workbench.db",
    listener: Listener | None = None,
) -> Report | EvalReport:
    """Resume a run of `optimize` or of `eval`. Raises the errors of these."""
    with Store(database, create=False) as store:
        kind = kind_of(store.find_run(run))
    if kind != "eval":
        return resume(run, options=options, database=database, listener=listener)
    given = options or Options()
    chosen = EvalOptions(given.sets, sandbox=given.sandbox)
    return resume_evaluation(run, options=chosen, database=database, listener=listener)


class EvalRun:
    """The lifecycle of one evaluation. A resumed one repeats it from the start; the journal answers the paid calls."""

    def __init__(
        self,
        store: Store,
        run_id: int,
        run: str,
        task: Task,
        options: EvalOptions,
        listener: Listener | None,
        earlier_seconds: float = 0.0,
        pool: LMPool | None = None,
    ):
        spec = task.spec
        self.store, self.run_id, self.run, self.task, self.options = store, run_id, run, task, options
        opened: dict[str, Any] = {"pool": pool, "sandbox": options.sandbox, "data_files": task.data_files}
        self.opened = Run(store, run_id, run, spec, seconds=earlier_seconds, **opened)
        self.record, self.evaluations = self.opened.record, Evaluations(store, run_id)
        self.ledger, self.runtime = self.opened.ledger, self.opened.runtime
        budget = spec.budget.model_dump(exclude_none=True)
        info = RunInfo(run, spec.name, str(store.path), budget, "eval", settings_to_compare(task))
        self.announcer = Announcer(self.opened, info, listener)
        self.runtime.elsewhere = make_crew(task, self.runtime, self.announcer.emit)
        self.evaluator = Evaluator(
            self.runtime, task.metric, spec.concurrency, source=task.source, further=task.further_metrics
        )
        self.rows = split_rows(task, str(options.split))
        # Rows of val may become sealed rows of a later run.
        described = describe_rows(self.rows, task.inputs, task.rule)
        self.seen = dict(zip((row.id for row in self.rows), described, strict=True))
        self.sealed_tests, self.name = SealedTests(store), evaluated_name(task)
        self.results: list[list[Result | None]] = [[None] * len(self.rows) for _ in range(options.repeats)]
        self.row_keys, self.warnings, self.warned = RowKeys(task), list[str](), list[str]()
        self._sum, self._scored, self._done = 0.0, 0, 0

    async def go(self) -> EvalReport:
        """Run to the end and return the report. Errors of the metric or the server are raised after it is saved."""
        async with self.opened:
            self.warned = [*self.task.dataset.warnings, *disk_warnings(self.store.path), *self.warnings]
            if resumed := self.ledger.resumed:
                self.ledger.bill.forget_unanswered()
            split = str(self.options.split)
            self.announcer.start(
                self.task.spec.track, self.evaluator, warnings=self.warned, resumed=resumed, split=split
            )
            status, raised = "finished", None
            try:
                await self._run()
            except (Interrupted, asyncio.CancelledError):
                status = "interrupted"
            except BudgetSpent as spent:
                status, raised = "budget", spent
            except BaseException as error:
                status, raised = "failed", error
            self.warnings += self.runtime.warnings()
            report = self._finish(status, raised)
            if status == "failed" and raised is not None:
                if isinstance(raised, WorkbenchError):
                    raised.report = report
                raise raised
            return report

    async def _run(self) -> None:
        """Run and score every row, `repeats` times."""
        workflow, split, n = self.task.workflow, str(self.options.split), len(self.rows)
        Candidates(self.store, self.run_id).add(workflow.hash, 1, None, "baseline", "", None, dumps(workflow.tree))
        self.record.name_rows({row.id: row.handle for row in self.rows})
        check_lms_ready(self.task, evaluated_lms(self.task), self.runtime.pool)
        program = self.evaluator.program(workflow)
        for replica in range(self.options.repeats):
            self.evaluations.begin(workflow.hash, split, replica)

        async def job(number: int) -> None:
            replica, index = divmod(number, n)
            result = await self.evaluator.run_one(program, self.rows[index], Draw(replica=replica), True, split)
            if result.score is not None:  # in the same commit as the row, so that a kill hides no test of it
                key, texts = self.seen[self.rows[index].id]
                SeenRows(self.store).add([(key, texts)])
                self.sealed_tests.add_row(self.run_id, self.name, key)
            self.evaluations.add_row(
                workflow.hash, split, replica, index, as_stored_row(result, self.row_keys, whole=True)
            )
            self.results[replica][index] = replace(result, trace=None, prediction={})
            if result.score is not None:
                self._sum, self._scored = self._sum + result.score, self._scored + 1
            self._done += 1
            mean = self._sum / self._scored if self._scored else 0.0
            self.announcer.emit("row_scored", done=self._done, of=n * self.options.repeats, mean=mean)

        try:
            await self.evaluator.gather(n * self.options.repeats, job)
        except BudgetSpent:
            self.ledger.bill.check_answered()
            raise
        self.evaluator.check_metric(n)
        if (error := unanswered_error(self._evaluation())) is not None:
            self.ledger.bill.forget_unanswered()
            raise error

    def _evaluation(self, replica: int | None = None) -> Evaluation:
        """Return all results, or those of one repeat."""
        asked = self.results if replica is None else [self.results[replica]]
        found = tuple(r for part in asked for r in part if r is not None)
        complete = len(found) == len(asked) * len(self.rows)
        return Evaluation(self.task.workflow, str(self.options.split), found, complete, replica or 0)

    def _finish(self, status: str, error: BaseException | None) -> EvalReport:
        """Store the totals and the report."""
        workflow, split = self.task.workflow, str(self.options.split)
        for replica in range(self.options.repeats):
            end_evaluation(self.evaluations, self._evaluation(replica))
        found = self._evaluation()
        message = None if error is None else str(error) if isinstance(error, WorkbenchError) else repr(error)
        unpriced = self._unpriced()
        report = EvalReport(
            run=self.run,
            name=self.task.spec.name,
            status=status,
            split=split,
            repeats=self.options.repeats,
            spent=self.ledger.summary(),
            database=str(self.store.path),
            workflow=workflow.hash,
            warnings=[
                *self.task.dataset.warnings,
                *self.warnings,
                *self._idle_repeats(),
                *self.ledger.warnings(),
                *self._fault_lines(),
                *([no_price_line(unpriced)] if unpriced and not self.ledger.prices.unpriced else []),
            ],
            unpriced=unpriced,
            error=message,
            label=self.options.label,
            ceiling=error.what if isinstance(error, BudgetSpent) else "",
            warned=self.warned,
            **summarise(self.results, found, [self.row_keys(row)[1] for row in self.rows]),
        )
        self.record.end_with_report(status, {**report.as_dict(), "lines": report.lines()}, self.ledger.seconds)
        report.warnings += self.announcer.finish(report)  # shown, not stored
        self.store.flush()
        return report

    def _idle_repeats(self) -> list[str]:
        """Warn if the repeats drew no new answers."""
        spent, times = self.ledger.spent, self.options.repeats
        if times == 1 or not spent.calls or spent.cached < spent.calls * (times - 1):
            return []
        return [
            "the repeats sent no calls of their own: at temperature 0 a repeated call is the same call. To see how "
            "much answers vary, set a temperature, e.g. --set lm.temperature=0.7"
        ]

    def _unpriced(self) -> list[str]:
        """List the models whose dollars are missing in the costs: 0 would make them look free."""
        self.store.flush()
        models = [(spec, self.runtime.pool.get(spec)) for spec in evaluated_lms(self.task)] if self._done else []
        prices, paid = self.ledger.prices, self.ledger.journal.sum_usd
        return [
            spec.model
            for spec, lm in models
            if lm.identity in prices.unpriced
            or ((lm.identity in prices.free or not paid(lm.identity)) and Model(spec, lm).usd(1, 1) is None)
        ]

    def _fault_lines(self) -> list[str]:
        further = [f"{name}: {line}" for name, _, faults in self.evaluator.further for line in faults.lines()]
        return [*self.evaluator.faults.lines(), *further]

"""The lifecycle of one run: baseline, optimizers, winner, sealed test, report; with its events and stored records."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from workbench.base.distribution import describe_machine
from workbench.base.files import disk_warnings
from workbench.errors import (
    BudgetSpent,
    Interrupted,
    LMError,
    PluginError,
    SearchStopped,
    ServerDead,
    ShareSpent,
    WorkbenchError,
    merge_errors,
)
from workbench.ledger import CallInfo
from workbench.lm import LMPool
from workbench.plugins import plugins
from workbench.proof import Report, build_report
from workbench.run import preflight
from workbench.run.announce import Announcer
from workbench.run.cost_estimate import budget_warnings
from workbench.run.options import Listener, Options
from workbench.run.rerun import rerun_baseline
from workbench.run.result_files import write_results
from workbench.run.sealed_test import reserve_for_proof, run_sealed_test
from workbench.run.steering import Steering
from workbench.run.stored_scores import RowKeys, ScoredRows, TrainRows, find_evaluation, store_evaluation
from workbench.run.trackers import RunInfo
from workbench.runtime import Run, make_crew
from workbench.store import Candidates, Evaluations, Orders, Store, dumps
from workbench.study import (
    Evaluation,
    Evaluator,
    Optimizer,
    Progress,
    Result,
    Study,
    observe_nodes,
    pick_winner,
    unanswered_error,
)
from workbench.task import Task, fitting_domains
from workbench.workflow import Workflow


class Session:
    """The lifecycle of one run. A resumed run repeats it from the start; the journal answers the paid calls."""

    def __init__(
        self,
        store: Store,
        run_id: int,
        run: str,
        task: Task,
        optimizers: list[tuple[str, Optimizer]],
        options: Options,
        listener: Listener | None,
        earlier_seconds: float = 0.0,
        pool: LMPool | None = None,
    ):
        self.store, self.run_id, self.run, self.task = store, run_id, run, task
        opened: dict[str, Any] = {"pool": pool, "sandbox": options.sandbox, "data_files": task.data_files}
        self.opened = Run(store, run_id, run, task.spec, seconds=earlier_seconds, searching=True, **opened)
        self.record, self.row_keys = self.opened.record, RowKeys(task)
        self.ledger, self.runtime = self.opened.ledger, self.opened.runtime
        self.scored = ScoredRows(store, run_id, task)
        self.optimizers, self.options = optimizers, options
        budget = task.spec.budget.model_dump(exclude_none=True)
        settings = preflight.settings_to_compare(task, optimizers)
        info = RunInfo(run, task.spec.name, str(store.path), budget, settings=settings)
        self.announcer = Announcer(self.opened, info, listener)
        self._emit = self.announcer.emit
        self.ledger.on_call = self._on_call  # also announces the call
        self.runtime.elsewhere = self.crew = make_crew(task, self.runtime, self._emit)
        self.evaluator = Evaluator(self.runtime, task.metric, task.spec.concurrency, source=task.source)
        self.evaluator.named = dict(task.further_metrics)
        self.progress = Progress(
            self._on_candidate,
            self._on_evaluation,
            on_note=self._on_note,
            on_rows=TrainRows(store, run_id, task.dataset.train, self.scored).record,
            stored=lambda workflow: find_evaluation(store, run_id, workflow, task.dataset.val),
        )
        self.steering = Steering(Orders(store, run_id), self.ledger, self.evaluator.running, self._emit)
        self._candidates = set[str]()
        self._saved_seconds, self._warned = 0.0, list[str]()
        self._in_flight = list[int]()  # calls in flight at the time of each call since the last evaluation

    async def go(self) -> Report:
        """Run to the end and return the report, with the reason for it. Bugs are raised after the report is saved."""
        async with self.opened:
            self._warned = [*self.task.dataset.warnings, *budget_warnings(self.task), *disk_warnings(self.store.path)]
            self._warned += preflight.search_warnings(self.task, self.optimizers)
            self.store.event(self.run_id, "machine", **describe_machine())
            self.announcer.start(
                self.task.spec.track, self.evaluator, warnings=self._warned, resumed=self.ledger.resumed
            )
            if (chosen := self.options.chosen) is not None:
                self._on_note("default", preflight.explain_choice(self.task, chosen), {"optimizers": chosen})
            data = self.task.dataset
            self.record.name_rows({row.id: row.handle for row in (*data.train, *data.val)})
            try:
                with data.test.sealed():
                    found = [] if self.ledger.resumed else await self.find_obstacles()
                if wrong := preflight.wrong_in_file(found):
                    raise merge_errors(wrong)
                if self.crew is not None and not found:
                    await self.crew.open()
                message = "\n".join(str(error) for error in found)
                report = self._report("failed", error=message) if found else await self._run()
            except (Interrupted, asyncio.CancelledError):
                report = self._report("interrupted")
            except (ServerDead, LMError) as error:
                report = self._report("failed", error=str(error))
            except BaseException as error:
                ours = isinstance(error, WorkbenchError)
                report = self._report("failed", error=str(error) if ours else f"{type(error).__name__}: {error}")
                report.resumable = not (ours and preflight.wrong_in_file([error]))
                self._finish(report)
                raise
            self._finish(report)
            return report

    async def find_obstacles(self) -> list[WorkbenchError]:
        """List errors that would stop the run, without a call. A resumed run skips this: its journal may suffice."""
        studies = [(self._study(self.task.workflow, i + 1, name), o) for i, (name, o) in enumerate(self.optimizers)]
        return await preflight.obstacles(self.task, self.runtime, studies)

    async def _run(self) -> Report:
        async with self.steering:
            with self.task.dataset.test.sealed():
                status, broken = await self._search()
            self.steering.end_search()
            return await self._prove(status, broken)

    async def _prove(self, status: str, broken: str | None) -> Report:
        task, baseline, winner = self.task, self.task.workflow, self._pick()
        self.ledger.reserve_for_proof()
        if winner == baseline and task.spec.proof.when_unchanged == "skip":
            return self._report(status, winner, None, broken)
        sides = [baseline, winner, self._best()][: task.spec.tested_sides]
        self._emit("testing", winner=winner.hash, changed=winner != baseline, sides=len({*sides}))
        self.record.name_rows({row.id: row.handle for row in task.dataset.test.open()})
        rows = await run_sealed_test(task, self.evaluator, self.progress, sides, self.row_keys, self._on_row)
        if status == "finished" and len(rows) < len(task.dataset.test):
            status = "budget"  # a larger budget can test the rest
        asked = task.spec.proof.rerun and winner != baseline
        rerun, told = await rerun_baseline(task, self.evaluator, rows) if asked else (None, [])
        report = self._report(status, winner, rows, broken)
        return replace(report, rerun=rerun, warnings=[*report.warnings, *told])

    async def _search(self) -> tuple[str, str | None]:
        """Evaluate the baseline, then run the optimizers, each on the best so far. Returns (status, error)."""
        self._reserve_for_proof()
        try:
            baseline = current = await self._observe()
            self._check_answered(await self._study(baseline, 0, "baseline").evaluate(baseline))
            self._reserve_for_proof()
            turns = self.optimizers * self.task.spec.rounds
            for number, (name, optimizer) in enumerate(turns):
                study = await self._study(current, number + 1, name).take_share(len(turns) - number)
                if lost := [address for address in self.task.spec.search if address not in study.domains]:
                    study.log(f"no longer searched, as an edit replaced the nodes: {', '.join(lost)}")
                with suppress(ShareSpent):
                    await self._improve(study, optimizer)
                current = study.best
        except SearchStopped:
            return "finished", None
        except BudgetSpent as spent:
            self.ledger.bill.check_answered()
            self.progress.shortfall.setdefault(spent.what, 0)
            self._emit("budget_spent", message=str(spent))
            return "budget", None
        except PluginError as error:
            return "failed", str(error)
        return "finished", None

    async def _observe(self) -> Workflow:
        """Return the baseline, with settings that its nodes reveal only when they run."""
        observed, _ = await observe_nodes(self.task, self.evaluator)
        if observed != self.task.workflow:
            self._on_candidate(self.task.workflow, "baseline")
            self.task = replace(self.task, workflow=observed)
        return observed

    def _check_answered(self, baseline: Evaluation) -> None:
        """Raise LMError if no row of the baseline was answered. Delete the failures, so a resumed run asks again."""
        if (error := unanswered_error(baseline)) is not None:
            self.ledger.bill.forget_unanswered()
            Evaluations(self.store, self.run_id).delete_val()
            raise error

    async def _improve(self, study: Study, optimizer: Optimizer) -> None:
        """Run one optimizer. A bug in it becomes a PluginError, and the best so far is still tested."""
        try:
            returned = await optimizer.optimize(study)
        except (WorkbenchError, asyncio.CancelledError):
            raise
        except Exception as error:
            self.store.event(self.run_id, "optimizer_raised", optimizer=study.name, traceback=traceback.format_exc())
            raise PluginError(f"optimizer '{study.name}' raised {type(error).__name__}: {error}") from error
        if not isinstance(returned, Workflow):
            raise PluginError(f"optimizer '{study.name}' returned {type(returned).__name__}, not a Workflow")
        await study.evaluate(returned)

    def _study(self, workflow: Workflow, number: int, name: str) -> Study:
        spec, metric = self.task.spec, self.task.metric
        label, target = getattr(metric, "field", None), getattr(metric, "target", None)
        return Study(
            workflow=workflow,
            train=self.task.dataset.train,
            val=self.task.dataset.val,
            evaluator=self.evaluator,
            ledger=self.ledger,
            progress=self.progress,
            rng=random.Random(f"{spec.seed}:{number}:{name}"),
            seed=spec.seed,
            objectives=tuple(spec.objectives),
            domains=spec.search if workflow == self.task.workflow else fitting_domains(spec.search, workflow),
            targets={label: target} if isinstance(label, str) and isinstance(target, str) else {},
            name=name,
            levels=spec.targets,
            description=spec.description,
        )

    def _reserve_for_proof(self) -> None:
        reserve_for_proof(self.task, self.evaluator, self.progress, self.ledger)

    def _best(self) -> Workflow:
        """Return the best candidate on val."""
        return self.progress.best.workflow if self.progress.best is not None else self.task.workflow

    def _pick(self) -> Workflow:
        """Return the winner: the best on val; with several objectives, the named pick of the Pareto set, or the
        cheapest that meets the targets."""
        found = [*self.progress.complete.values()]
        return pick_winner(found, self.task.spec).workflow if found else self.task.workflow

    # Events and the store

    def _on_call(self, call: CallInfo) -> None:
        self._emit("call_settled", call=call, ledger=self.ledger)
        if call.in_flight:
            self._in_flight.append(call.in_flight)
        self._save_seconds()

    def _on_row(self, done: int, of: int) -> None:
        self._emit("tested", done=done, of=of)

    def _on_candidate(self, workflow: Workflow, optimizer: str) -> None:
        self.steering.check()
        if workflow.hash in self._candidates:
            return
        self._candidates.add(workflow.hash)
        patch = workflow.patch
        Candidates(self.store, self.run_id).add(
            workflow.hash,
            len(self._candidates),
            workflow.parent,
            optimizer,
            patch.note if patch else "",
            dumps(patch.as_dict()) if patch else None,
            dumps(workflow.tree),
        )
        self._emit("candidate_proposed", candidate=workflow, optimizer=optimizer)

    def _on_note(self, optimizer: str, message: str, figures: Mapping[str, Any]) -> None:
        calls = self.ledger.spent.calls
        self._emit("optimizer_told", optimizer=optimizer, message=message, figures=dict(figures), calls=calls)

    async def _on_evaluation(self, evaluation: Evaluation) -> None:
        if Evaluations(self.store, self.run_id).find(evaluation.workflow.hash, "val", 0) is None:
            self.steering.take(evaluation.workflow.hash)
        self.scored.record(evaluation)
        await store_evaluation(self.store, self.run_id, evaluation, self.row_keys)
        self._reserve_for_proof()
        # Seconds are comparable only at the same number of requests in flight.
        in_flight, self._in_flight = self._in_flight, []
        mean, candidate = round(sum(in_flight) / max(1, len(in_flight)), 1), evaluation.workflow.hash
        self.store.event(self.run_id, "evaluated", candidate=candidate, calls=self.ledger.paid.calls, in_flight=mean)
        best, calls = self._best() == evaluation.workflow, self.ledger.spent.calls
        self._emit("candidate_evaluated", evaluation=evaluation, accepted=best, calls=calls)
        self._save_seconds()
        self.steering.carry_out(evaluation.workflow.hash)
        self._reserve_for_proof()  # an order may have raised the budget

    def _save_seconds(self) -> None:
        if self.ledger.seconds - self._saved_seconds > 2:
            self._saved_seconds = self.ledger.seconds
            self.record.save_seconds(self.ledger.seconds)

    def _report(
        self,
        status: str,
        winner: Workflow | None = None,
        rows: list[tuple[Result, ...]] | None = None,
        error: str | None = None,
    ) -> Report:
        winner = winner or self._best()
        warnings = [
            *self.task.dataset.warnings,
            *preflight.search_warnings(self.task, self.optimizers),
            *Candidates(self.store, self.run_id).unreached(len(self._candidates), self.run),
            *self.evaluator.faults.lines(),
            *self.runtime.warnings(),
            *self.steering.warnings(),
            *plugins().warnings(),
            *self.ledger.warnings(),
        ]
        return build_report(
            run=self.run,
            status=status,
            task=self.task,
            winner=winner,
            evaluations=self.progress.complete,
            rows=rows,
            best=self._best(),
            ledger=self.ledger,
            database=str(self.store.path),
            candidates=len(self._candidates),
            kept_state=self.runtime.kept_state(),
            warnings=warnings,
            error=error,
            warned=self._warned,
            shortfall=self.progress.shortfall,
        )

    def _finish(self, report: Report) -> None:
        """Write the result files and store the report."""
        if report.test_rows or report.status in ("finished", "budget"):
            write_results(report, self.task, self.options, self.record, self.progress.complete)
        stored = {**report.as_dict(), "lines": report.lines()}
        self.record.end_with_report(report.status, stored, self.ledger.seconds)
        report.warnings += self.announcer.finish(report)  # shown, not stored
        self.store.flush()

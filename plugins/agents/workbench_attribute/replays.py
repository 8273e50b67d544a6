"""Finds the steps that decided the failures of a stored run: repeats its rows with steps repaired, in a run of its own.

Calls before a repaired step are answered from the journal of the run, at no cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench.base.concurrency import run_in_loop
from workbench.errors import BudgetSpent, SpecError, StoreError
from workbench.evaluation import find_candidate, read_rows
from workbench.ledger import CallInfo, Spend
from workbench.lm import LMPool
from workbench.run import prepare_stored
from workbench.runtime import Draw, Run, SandboxChoice
from workbench.spec import LMSpec
from workbench.store import (
    Candidates,
    Evaluations,
    Store,
    dumps,
    read_options,
    read_report,
)
from workbench.study import Evaluator, Result
from workbench.task import Example, Task, find_row
from workbench.workflow import Workflow
from workbench_attribute.diagnoses import RowFinding
from workbench_attribute.repairs import label_repairs, model_repairs, sibling_repairs
from workbench_attribute.replay_report import ReplayReport, share_costs
from workbench_kit.credit import Address, Diagnosis, Repair, Repaired, TraceStep, bisect_steps, scan_steps, steps_of

#: Statuses of a run of replays: while it is running, and when it is done.
WORKING, DONE = "replaying", "replayed"

ENDED = "budget: it ran out"

#: Maximum passing runs of the same row whose answers are tried.
MAX_SIBLINGS = 3

How = Literal["lm", "fresh", "sibling", "label"]


@dataclass(frozen=True)
class ReplayOptions:
    """Options for replaying failures.

    Attributes:
        repair: the replacement for a step. lm: the answer of another model; fresh: further draws of the same one;
            sibling: the output in a candidate or repeat that passed on this row; label: for a node whose outputs are
            all fields of the row, these fields.
        lm: the other model; None: the role `proposer` of the file.
        draws: of a step, for `fresh`.
        scan: repair one step at a time, from the first. The default is bisection, which takes fewer re-runs, and is
            right if repairing more steps never does harm. `fresh` always scans.
        passing: the minimum score of a passing row.
        rows: ids; none: those that fail. most: the maximum number.
        candidate: of a run of optimize: a hash, `baseline` or `winner`, the default.
        calls: the most to pay for; the file's ceilings on tokens and dollars apply, too.
    """

    repair: How = "lm"
    lm: LMSpec | None = None
    draws: int = 3
    scan: bool = False
    passing: float = 1.0
    rows: Sequence[str] = ()
    most: int = 20
    candidate: str = ""
    calls: int | None = None
    sandbox: SandboxChoice = field(default_factory=SandboxChoice.from_environment)

    def as_dict(self) -> dict[str, Any]:
        """Return the options that identify a run of replays, without the budget and the sandbox."""
        return {k: v for k, v in vars(self).items() if k not in ("calls", "sandbox")}


def replay_failures(
    run: str,
    *,
    options: ReplayOptions | None = None,
    database: str | Path = "workbench.db",
    pool: LMPool | None = None,
    on_row: Callable[[int, int], None] = lambda done, of: None,
) -> ReplayReport:
    """Name the step that decided each failure of a stored run. Sealed rows are not examined.

    The same call again pays nothing, and a killed one continues. A repaired run really makes its new tool calls.

    Args:
        run: a run of eval or optimize: its name, its beginning, a tag, or `last`.
        options: of the replay.
        database: path of the run database.
        pool: replaces the plugins' language models, for tests.
        on_row: called after each row with the number of rows done, and of all.

    Raises:
        SpecError: the file of the run can no longer be used, or there is no model to repair with.
        StoreError: there is no such run, its data have changed, or it has no failed rows that may be examined.
    """
    options = options or ReplayOptions()
    with Store(database, create=False) as store:
        row = store.find_run(run)
        task = prepare_stored(row)
        if task.data_hash != row["data_hash"]:
            raise StoreError(f"the data of run {row['run']} have changed since it started, so it cannot be repeated")
        if read_options(row).get("referred") != task.external_hash:
            raise StoreError(
                f"a file that the workflow of run {row['run']} refers to has changed since it started; run it again"
            )
        workflow = _workflow(store, row, task, options.candidate)
        failed = _failed(store, row, task, workflow, options)
        left_out, failed = len(failed[options.most :]), failed[: options.most]
        passing = _passing(store, row, options, failed)
        model = _model(task, options)
        made = _run_of(store, row, task, workflow, options, model, pool)
        return run_in_loop(_Course(made, row, task, workflow, options, model, passing, on_row).go(failed, left_out))


def _workflow(store: Store, row: Any, task: Task, candidate: str) -> Workflow:
    hash_ = find_candidate(store, row, read_report(row), candidate)
    if hash_ is None:
        raise StoreError(f"run {row['run']} has no result yet; name a candidate, e.g. --candidate baseline")
    if hash_ == task.workflow.hash:
        return task.workflow
    tree = Candidates(store, row["id"]).find_tree(hash_)
    assert tree is not None
    return task.workflow.with_tree(tree)


@dataclass(frozen=True)
class _Failed:
    example: Example
    replica: int
    score: float


def _failed(store: Store, row: Any, task: Task, workflow: Workflow, options: ReplayOptions) -> list[_Failed]:
    """Return the rows to examine, in their stored order."""
    examples = {e.id: e for e in (*task.dataset.train, *task.dataset.val)}
    stored = read_rows(store, row, read_report(row), workflow.hash)
    open_rows = [r for r in stored if r["split"] != "test" and r["example"] in examples]
    place = f"train or val of run {row['run']}"
    asked = {find_row(name, {id_: one.handle for id_, one in examples.items()}, place) for name in options.rows}
    chosen = [r for r in open_rows if r["example"] in asked] if asked else open_rows
    failed = [r for r in chosen if r["score"] is not None and r["score"] < options.passing]
    if not failed:
        kept = " Its test rows are sealed, so they are not examined: score val." if stored and not open_rows else ""
        raise StoreError(f"run {row['run']} has no failed row of train or val among its {len(chosen)}.{kept}")
    unique = {(r["example"], r["replica"]): r for r in failed}
    return [_Failed(examples[r["example"]], r["replica"], r["score"]) for r in unique.values()]


def _passing(
    store: Store, row: Any, options: ReplayOptions, failed: Sequence[_Failed]
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the stored rows that passed in candidates and repeats, by example, if they are used as repairs. Raises
    StoreError if no failed row has any."""
    found = defaultdict[str, list[Mapping[str, Any]]](list)
    for stored in Evaluations(store, row["id"]).read_rows(None) if options.repair == "sibling" else ():
        if stored["score"] is not None and stored["score"] >= options.passing:
            found[stored["example"]].append(stored)
    if options.repair == "sibling" and not any(one.example.id in found for one in failed):
        raise StoreError(
            f"no candidate or repeat of run {row['run']} passed on any of its {len(failed)} failed rows; "
            "use another model or --repair fresh"
        )
    return found


def _model(task: Task, options: ReplayOptions) -> LMSpec | None:
    if options.repair != "lm":
        return None
    if options.lm is not None:
        return options.lm
    if (found := task.spec.roles.get("proposer")) is not None:
        return found
    raise SpecError(
        "a model must be named to repair steps",
        hint="Name it, e.g. --lm openai/gpt-4.1, or give the file roles: {proposer: ...}; or use --repair fresh.",
    )


def _run_of(
    store: Store,
    row: Any,
    task: Task,
    workflow: Workflow,
    options: ReplayOptions,
    model: LMSpec | None,
    pool: LMPool | None,
) -> Run:
    """Return the run with these options, or a new one."""
    model_dict = None if model is None else model.model_dump(mode="json")
    given = {"run": row["run"], "workflow": workflow.hash, **options.as_dict(), "lm": model_dict}
    settings: dict[str, Any] = {
        "name": task.spec.name,
        "kind": "attribute",
        "spec": task.source.text,
        "options": dumps(given),
    }
    budget = task.spec.budget.model_copy(update={"calls": options.calls, "minutes": None})
    opened = {"pool": pool, "sandbox": options.sandbox, "data_files": task.data_files, "reuse": False}
    return Run.found(store, (WORKING, DONE), task.spec, settings, budget=budget, source=row["id"], **opened)


class _UnansweredError(Exception):
    """Infrastructure failed in a repeated run, which is no evidence about the step."""


#: Attempts and US dollars of the current row's calls, by key, in all processes.
_asked: ContextVar[dict[str, tuple[int, float]]] = ContextVar("asked")


class _Course:
    """The examination of all failed rows, several at once."""

    def __init__(
        self,
        run: Run,
        row: Any,
        task: Task,
        workflow: Workflow,
        options: ReplayOptions,
        model: LMSpec | None,
        passing: Mapping[str, Sequence[Mapping[str, Any]]],
        on_row: Callable[[int, int], None],
    ):
        self.run, self.row, self.task, self.workflow, self.options = run, row, task, workflow, options
        self.model, self.passing, self.on_row = model, passing, on_row
        self.evaluator = Evaluator(run.runtime, task.metric, task.spec.concurrency, source=task.source)
        self.paid = Spend()
        run.ledger.on_call = self._count

    def _count(self, info: CallInfo) -> None:
        spent = Spend(info.attempts, 0, info.prompt_tokens, info.completion_tokens, info.usd, info.seconds)
        if not info.cached:
            self.paid.add(spent)
        asked = _asked.get(None)
        if asked is not None and not info.reused:
            asked[info.key] = info.attempts, info.usd

    async def go(self, failed: Sequence[_Failed], left_out: int) -> ReplayReport:
        """Examine the rows, and store the findings with the run."""
        async with self.run as run:
            if run.resumed:
                run.ledger.bill.forget_unanswered()  # calls that failed because of a server are repeated
            rows = await self._examine_all(failed)
            how = self.options.repair if self.model is None else f"{self.options.repair}: {self.model.model}"
            method = f"replay, steps repaired by {how}"
            report = ReplayReport(run.name, method, [self.row["run"]], rows, self.paid, left_out)
            run.record.end_with_report(DONE, report.as_dict(), run.ledger.seconds)
        return report

    async def _examine_all(self, failed: Sequence[_Failed]) -> list[RowFinding]:
        found: list[RowFinding | None] = [None] * len(failed)
        asked = [dict[str, tuple[int, float]]() for _ in failed]

        async def job(index: int) -> None:
            _asked.set(asked[index])
            found[index] = await self._examine(failed[index])
            self.on_row(sum(one is not None for one in found), len(failed))

        try:
            await self.evaluator.gather(len(failed), job)
        except BudgetSpent:
            self.run.ledger.bill.check_answered()
        rows = [one or self._row(row, failure=ENDED) for one, row in zip(found, failed, strict=True)]
        return share_costs(rows, asked)

    def _row(self, failed: _Failed, d: Diagnosis | None = None, steps: int = 0, failure: str = "") -> RowFinding:
        found, step = d or Diagnosis(None), d.step if d else None
        return RowFinding(
            failed.example.id,
            self.workflow.hash,
            failed.replica,
            failed.score,
            node=step and step.node,
            agent=step and step.agent,
            step=step and step.index,
            steps=steps,
            confidence=found.confidence,
            repaired=found.repaired if d else None,
            reruns=found.reruns,
            evidence=found.evidence,
            failure=failure,
            handle=failed.example.handle,
        )

    async def _examine(self, failed: _Failed) -> RowFinding:
        first = await self._run(self.workflow, failed, {})
        assert first.trace is not None
        steps = all_steps = steps_of(first.trace)
        if self._passes(first):
            words = "it passes when repeated: its tool results or model answers were not recorded"
            return self._row(failed, Diagnosis(None, evidence=words), len(steps))
        if self.options.repair == "label":
            steps, repairs = label_repairs(self.workflow, steps, failed.example.fields)
        elif self.options.repair == "sibling":
            repairs = sibling_repairs(steps, await self._siblings(failed))
        else:
            repairs = model_repairs(steps, self.model, self.options.draws)

        async def run(chosen: Mapping[Address, Repair]) -> bool:
            return self._passes(await self._run(self.workflow, failed, chosen))

        if not any(repairs.values()):
            nothing = Diagnosis(None, evidence=f"none of its {len(all_steps)} steps has a repair of this kind")
            return self._row(failed, nothing, len(all_steps))
        search = scan_steps if self.options.scan or self.options.repair == "fresh" else bisect_steps
        try:
            found = await search(steps, run, lambda step: repairs.get(step.index, ()))
        except _UnansweredError as error:
            return self._row(failed, None, len(all_steps), str(error))
        missing = [s for s in steps if not repairs.get(s.index) and (found.step is None or s.index < found.step.index)]
        if missing:
            found.confidence /= 2
            found.evidence += f"; {len(missing)} steps{' before it' if found.step else ''} have no repair of this kind"
        return self._row(failed, found, len(all_steps))

    async def _run(self, workflow: Workflow, failed: _Failed, repairs: Mapping[Address, Repair]) -> Result:
        draw = Draw(failed.replica, variation=Repaired(repairs))
        found = await self.evaluator.run_one(self.evaluator.program(workflow), failed.example, draw, traces=True)
        if found.score is None and repairs:
            raise _UnansweredError(f"not answered: {found.message}")
        return found

    def _passes(self, result: Result) -> bool:
        return result.score is not None and result.score >= self.options.passing

    async def _siblings(self, failed: _Failed) -> list[list[TraceStep]]:
        """Return the steps of passing runs of the row. Each run is repeated from the journal."""
        found: list[list[TraceStep]] = []
        for stored in self.passing.get(failed.example.id, ())[:MAX_SIBLINGS]:
            workflow = _workflow(self.run.store, self.row, self.task, stored["candidate"])
            passed = await self._run(workflow, _Failed(failed.example, stored["replica"], 1.0), {})
            if passed.trace is not None and self._passes(passed):
                found.append(steps_of(passed.trace))
        return found

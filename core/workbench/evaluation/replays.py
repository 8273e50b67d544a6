"""Which step decided the failures of a stored run: its rows are repeated with steps repaired, in a run of its own.

What comes before a repaired step is answered from the journal of the run, at no cost.
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench.attribution import Diagnosis, Rerun, TraceStep, bisect_steps, scan_steps, steps_of
from workbench.concurrency import run_in_loop
from workbench.errors import BudgetSpent, SpecError, StoreError
from workbench.evaluation.rows import find_candidate, read_rows
from workbench.ledger import CallInfo, Ledger, Spend
from workbench.lm import LMPool
from workbench.run import prepare_stored
from workbench.runtime import Address, Draw, Repair, Runtime, SandboxChoice
from workbench.spec import BudgetSpec, LMSpec
from workbench.store import (
    Candidates,
    Evaluations,
    RunLock,
    RunRecord,
    Store,
    add_run,
    dumps,
    find_started_run,
    read_report,
)
from workbench.study import Evaluator, Result
from workbench.task import Example, Task
from workbench.workflow import Workflow

#: Statuses of a run of replays, while it goes on and after it.
WORKING, DONE = "replaying", "replayed"

#: Passing runs of the same row whose answers are tried.
MOST_SIBLINGS = 3

How = Literal["lm", "fresh", "sibling", "label"]


@dataclass(frozen=True)
class ReplayOptions:
    """How failures are repeated.

    Attributes:
        repair: what takes the place of a step. lm: the answer of another model; fresh: further draws of the same one;
            sibling: what a candidate or repeat that passed on this row said there; label: of a node whose outputs are
            all fields of the row, these.
        lm: the other model; None: the role `proposer` of the file.
        draws: of a step, for `fresh`.
        scan: repair one step at a time, from the first; otherwise by bisection, which takes fewer re-runs, and is right
            where repairing more steps never does harm. `fresh` always scans.
        passing: a row passes from this score on.
        rows: ids; none: those that fail. most: at most so many.
        candidate: of a run of optimize: a hash, `baseline` or `winner`, which is the default.
        calls: that may be paid.
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
        """What tells two runs of replays apart. The budget and the sandbox do not."""
        return {k: v for k, v in vars(self).items() if k not in ("calls", "sandbox")}


@dataclass(frozen=True)
class RowDiagnosis:
    """A failed row, and the step that decided it. diagnosis: None where the budget ended before."""

    example: str
    score: float
    diagnosis: Diagnosis | None
    steps: int = 0


@dataclass
class ReplayReport:
    """What `replay_failures` found.

    Attributes:
        run, repeated: the names of the run of replays, and of that which it repeats.
        rows: in the order of the stored ones. left_out: failed rows beyond `most`.
        paid: what this process paid.
        by_node: how often each node was decisive, most often first.
    """

    run: str
    repeated: str
    rows: list[RowDiagnosis]
    paid: Spend
    by_node: dict[str, int]
    left_out: int = 0

    @property
    def repair_rate(self) -> float:
        """The share of the diagnosed rows that pass when the named step alone is repaired."""
        known = [row.diagnosis for row in self.rows if row.diagnosis is not None]
        return sum(d.repaired for d in known) / len(known) if known else 0.0

    @property
    def complete(self) -> bool:
        """Whether the budget was enough."""
        return all(row.diagnosis is not None for row in self.rows)


def replay_failures(
    run: str,
    *,
    options: ReplayOptions | None = None,
    database: str | Path = "workbench.db",
    pool: LMPool | None = None,
    on_row: Callable[[int, int], None] = lambda done, of: None,
) -> ReplayReport:
    """Name the step that decided each failure of a stored run. Sealed rows are not examined.

    The same call again pays nothing, and one that was killed goes on. Calls of tools that the repaired run makes anew
    are made for real.

    Args:
        run: a run of eval or optimize: its name, its beginning, a tag, or `last`.
        options: how.
        database: path of the run database.
        pool: language models in place of those of the plugins, for tests.
        on_row: called after each row with the number of rows done, and of all.

    Raises:
        SpecError: the file of the run cannot be used any more, or there is no model to repair with.
        StoreError: there is no such run, its data have changed, or it has no failed rows that may be examined.
    """
    options = options or ReplayOptions()
    store = Store(database, create=False)
    try:
        row = store.find_run(run)
        task = prepare_stored(row)
        if task.data_hash != row["data_hash"]:
            raise StoreError(f"the data of run {row['run']} have changed since it started, so it cannot be repeated")
        workflow = _workflow(store, row, task, options.candidate)
        failed = _failed(store, row, task, workflow, options)
        left_out, failed = len(failed[options.most :]), failed[: options.most]
        passing = _passing(store, row, options, failed)
        model = _model(task, options)
        name, run_id, seconds = _run_of(store, row, task, workflow, options, model)
        with RunLock(store, name):
            ledger = Ledger(
                store,
                run_id,
                BudgetSpec.model_validate({"calls": options.calls}),
                earlier_seconds=seconds,
                source=row["id"],
            )
            course = _Course(store, row, task, workflow, options, model, ledger, pool, passing, on_row)
            found = run_in_loop(course.go(failed))
            RunRecord(store, run_id).end(DONE)
        nodes = Counter(r.diagnosis.step.node for r in found if r.diagnosis and r.diagnosis.step)
        return ReplayReport(name, row["run"], found, course.paid, dict(nodes.most_common()), left_out)
    finally:
        store.close()


def _workflow(store: Store, row: Any, task: Task, candidate: str) -> Workflow:
    hash_ = find_candidate(store, row, read_report(row), candidate)
    if hash_ in (None, task.workflow.hash):
        return task.workflow
    tree = Candidates(store, row["id"]).find_tree(hash_)
    assert tree is not None
    return Workflow(tree, task.workflow.base)


@dataclass(frozen=True)
class _Failed:
    example: Example
    replica: int
    score: float


def _failed(store: Store, row: Any, task: Task, workflow: Workflow, options: ReplayOptions) -> list[_Failed]:
    """The rows to examine, in their stored order."""
    examples = {e.id: e for e in (*task.dataset.train, *task.dataset.val)}
    stored = read_rows(store, row, read_report(row), workflow.hash)
    open_rows = [r for r in stored if r["split"] in ("train", "val") and r["example"] in examples]
    if unknown := [name for name in options.rows if name not in examples]:
        raise StoreError(f"run {row['run']} has no train or val row '{unknown[0]}'; see workbench show {row['run']}")
    chosen = [r for r in open_rows if r["example"] in options.rows] if options.rows else open_rows
    failed = [r for r in chosen if r["score"] is not None and r["score"] < options.passing]
    if not failed:
        kept = " Its test rows are sealed, so they are not examined: score val." if stored and not open_rows else ""
        raise StoreError(f"run {row['run']} has no failed row of train or val among its {len(chosen)}.{kept}")
    unique = {(r["example"], r["replica"]): r for r in failed}
    return [_Failed(examples[r["example"]], r["replica"], r["score"]) for r in unique.values()]


def _passing(
    store: Store, row: Any, options: ReplayOptions, failed: Sequence[_Failed]
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """By example, the stored rows of candidates and repeats that passed, where these repair. Raises StoreError if there
    is none for any failed row."""
    found = defaultdict[str, list[Mapping[str, Any]]](list)
    for stored in Evaluations(store, row["id"]).read_rows(None) if options.repair == "sibling" else ():
        if stored["score"] is not None and stored["score"] >= options.passing:
            found[stored["example"]].append(stored)
    if options.repair == "sibling" and not any(one.example.id in found for one in failed):
        raise StoreError(
            f"no candidate or repeat of run {row['run']} passed on any of the {len(failed)} failed rows, so there is no "
            "answer to take; repair by another model or by fresh draws"
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
        "to repair steps by another model one must be named",
        hint="Name it, e.g. --lm openai/gpt-4.1, or give the file roles: {proposer: ...}; or repair by fresh draws: "
        "--repair fresh.",
    )


def _run_of(
    store: Store, row: Any, task: Task, workflow: Workflow, options: ReplayOptions, model: LMSpec | None
) -> tuple[str, int, float]:
    """(name, id, seconds so far) of the run with these options, or of a new one."""
    model_dict = None if model is None else model.model_dump(mode="json")
    given = {"run": row["run"], "workflow": workflow.hash, **options.as_dict(), "lm": model_dict}
    for status in (WORKING, DONE):
        if (known := find_started_run(store, status, task.source.text, dumps(given))) is not None:
            return known["run"], known["id"], known["seconds"] or 0.0
    name = secrets.token_hex(4)
    run_id = add_run(
        store,
        run=name,
        name=task.spec.name,
        status=WORKING,
        kind="attribute",
        spec=task.source.text,
        options=dumps(given),
    )
    return name, run_id, 0.0


class _Bill(Spend):
    """What the run of replays paid for a row, in all its processes."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = set[str]()


#: That of the row which is being examined.
_bill: ContextVar[_Bill] = ContextVar("bill")


class _Course:
    """All failed rows, several at once."""

    def __init__(
        self,
        store: Store,
        row: Any,
        task: Task,
        workflow: Workflow,
        options: ReplayOptions,
        model: LMSpec | None,
        ledger: Ledger,
        pool: LMPool | None,
        passing: Mapping[str, Sequence[Mapping[str, Any]]],
        on_row: Callable[[int, int], None],
    ):
        self.store, self.row, self.task, self.workflow, self.options = store, row, task, workflow, options
        self.model, self.ledger, self.passing, self.on_row = model, ledger, passing, on_row
        self.runtime = Runtime.of_spec(task.spec, ledger, pool=pool, sandbox=options.sandbox)
        self.evaluator = Evaluator(self.runtime, task.metric, task.spec.concurrency, source=task.source)
        self.paid = Spend()
        ledger.on_call = self._count

    def _count(self, info: CallInfo) -> None:
        spent = Spend(info.attempts, 0, info.prompt_tokens, info.completion_tokens, info.usd, info.seconds)
        if not info.cached:
            self.paid.add(spent)
        bill = _bill.get(None)
        if bill is not None and not info.reused and info.key not in bill.keys:
            bill.keys.add(info.key)
            bill.add(spent)

    async def go(self, failed: Sequence[_Failed]) -> list[RowDiagnosis]:
        found: list[RowDiagnosis | None] = [None] * len(failed)

        async def job(index: int) -> None:
            found[index] = await self._examine(failed[index])
            self.on_row(sum(one is not None for one in found), len(failed))

        try:
            await self.evaluator.gather(len(failed), job)
        except BudgetSpent:
            self.ledger.bill.check_answered()
        finally:
            await self.runtime.aclose()
            self.ledger.close()
        return [one or RowDiagnosis(row.example.id, row.score, None) for one, row in zip(found, failed, strict=True)]

    async def _examine(self, failed: _Failed) -> RowDiagnosis:
        _bill.set(_Bill())
        first = await self._run(self.workflow, failed, {})
        assert first.trace is not None
        steps = steps_of(first.trace)
        if self._passes(first):
            words = "it passes when it is repeated: what its tools gave, or its model said, was not recorded"
            return RowDiagnosis(failed.example.id, failed.score, Diagnosis(None, evidence=words), len(steps))
        if self.options.repair == "label":
            steps = _labelled(self.workflow, steps, failed.example)
        siblings = await self._siblings(failed) if self.options.repair == "sibling" else []
        search = scan_steps if self.options.scan or self.options.repair == "fresh" else bisect_steps

        async def run(repairs: Mapping[Address, Repair]) -> Rerun:
            calls, usd = _bill.get().calls, _bill.get().usd
            result, bill = await self._run(self.workflow, failed, repairs), _bill.get()
            return Rerun(self._passes(result), result.score, bill.calls - calls, bill.usd - usd)

        diagnosis = await search(steps, run, lambda step: self._repairs(step, failed.example, siblings))
        if self.options.repair == "sibling" and not siblings:
            diagnosis.evidence = "no candidate or repeat of this run passed on this row"
        return RowDiagnosis(failed.example.id, failed.score, diagnosis, len(steps))

    async def _run(self, workflow: Workflow, failed: _Failed, repairs: Mapping[Address, Repair]) -> Result:
        draw = Draw(failed.replica, repairs=repairs)
        return await self.evaluator.run_one(self.evaluator.program(workflow), failed.example, draw, traces=True)

    def _passes(self, result: Result) -> bool:
        return result.score is not None and result.score >= self.options.passing

    def _repairs(
        self, step: TraceStep, example: Example, siblings: Sequence[Mapping[Address, TraceStep]]
    ) -> list[Repair]:
        """The repairs of a step, in the order in which they are tried."""
        called = step.response is not None
        if self.options.repair == "lm":
            return [Repair(lm=self.model)] if called else []
        if self.options.repair == "fresh":
            return [Repair(draw=k) for k in range(1, self.options.draws + 1)] if called else []
        if self.options.repair == "label":
            return [Repair(outputs={name: example.fields[name] for name in step.outputs or ()})]
        there = [one[step.address] for one in siblings if step.address in one]
        return [Repair(response=s.response) if called else Repair(outputs=s.outputs) for s in there]

    async def _siblings(self, failed: _Failed) -> list[Mapping[Address, TraceStep]]:
        """The steps of passing runs of the row, by address: the run repeated from the journal."""
        found: list[Mapping[Address, TraceStep]] = []
        for stored in self.passing.get(failed.example.id, ())[:MOST_SIBLINGS]:
            workflow = _workflow(self.store, self.row, self.task, stored["candidate"])
            passed = await self._run(workflow, _Failed(failed.example, stored["replica"], 1.0), {})
            if passed.trace is not None and self._passes(passed):
                found.append({step.address: step for step in steps_of(passed.trace)})
        return found


def _labelled(workflow: Workflow, steps: Sequence[TraceStep], example: Example) -> list[TraceStep]:
    """A step for each node of the workflow whose outputs are all fields of the row, in the order of the run."""
    names = list(dict.fromkeys(step.top for step in steps))
    found: list[TraceStep] = []
    for name in names:
        first = next(step for step in steps if step.top == name)
        outputs = workflow.enabled_nodes[name].outputs
        if all(output in example.fields for output in outputs):
            last = [step for step in steps if step.top == name][-1]
            place = (first.address[0][:1], 0)
            found.append(TraceStep(len(found), name, last.agent, place, last.text, outputs=dict.fromkeys(outputs)))
    return found

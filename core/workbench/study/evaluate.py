"""Evaluation of a workflow on many examples, concurrently. Failures are recorded, and losers stopped early."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from workbench.base.concurrency import run_in_thread
from workbench.base.type_guards import copied
from workbench.errors import BudgetSpent, FailureKind, LMError, NodeError, SpecError
from workbench.ledger import Spend, current_row
from workbench.runtime import FIRST_DRAW, Draw, Program, Runtime, SandboxResult, ends_run, make_request
from workbench.spec import Source
from workbench.study.evaluation import Evaluation, Result, RowRun, filled_scores
from workbench.study.racing import Race
from workbench.task import Example, Metric, MetricFaults, Score, as_score, highest_score
from workbench.workflow import ExampleRun, Trace, Workflow

#: Prefix of a row's message if its metric failed. The rest may quote the right answer.
METRIC_SAID = "metric: "


def estimate_calls(evaluation: Evaluation, n: int) -> int:
    """Estimate the calls for n examples of an evaluated workflow, from its average."""
    return math.ceil(n * evaluation.objectives["calls"])


def kind_of_scoring(error: BaseException) -> FailureKind:
    """Return the kind of failure for a row whose metric raised this error."""
    kind = error.kind if isinstance(error, LMError | NodeError) else FailureKind.METRIC
    if isinstance(error, LMError) and not kind.no_result:
        return FailureKind.JUDGE  # the judge gave no grade, which is not the workflow's failure
    return kind


class Evaluator:
    """Runs and scores examples under one runtime.

    block: racing sees the scores only after each block of this many examples, in order, so that its decisions do not
    depend on which answer came first.
    source: location of `metric` in the file, for the error if it never works.
    further: metrics by name whose scores are shown next to the score of `metric`. Their errors fail no row.
    """

    def __init__(
        self,
        runtime: Runtime,
        metric: Metric,
        concurrency: int,
        block: int = 8,
        source: Source | None = None,
        further: Sequence[tuple[str, Metric]] = (),
    ):
        self.runtime, self.metric, self.concurrency, self.block = runtime, metric, concurrency, block
        self.faults, self._source = MetricFaults(metric), source
        self.further = tuple((name, one, MetricFaults(one)) for name, one in further)
        self.named: Mapping[str, Metric] = {}  # metrics to be called by name, which score no row by themselves
        self._programs: dict[str, Program] = {}
        self._user_code = asyncio.Lock()
        self.running = asyncio.Event()  # rows begin only while it is set
        self.running.set()
        self.on_row: Callable[[RowRun], None] | None = None
        self._numbers = itertools.count(1)
        self.judged, self.judging_spent = 0, Spend()  # number of rows that a model scored, and the spending for them

    def program(self, workflow: Workflow) -> Program:
        if workflow.hash not in self._programs:
            if len(self._programs) >= 64:
                self._programs.pop(next(iter(self._programs)))
            self._programs[workflow.hash] = Program(workflow, self.runtime)
        return self._programs[workflow.hash]

    async def evaluate(
        self,
        workflow: Workflow,
        examples: Sequence[Example],
        *,
        split: str = "",
        draw: Draw = FIRST_DRAW,
        race: Race | None = None,
        traces: bool = False,
    ) -> Evaluation:
        """Score a workflow. Raises BudgetSpent if the budget ends before all requested examples are done."""
        program = self.program(workflow)

        def run(row: int) -> Awaitable[Result]:
            return self.run_one(program, examples[row], draw, traces, split)

        if race is None:
            results = await self.gather(len(examples), run)
            self.check_metric(len(examples))
            return Evaluation(workflow, split, tuple(results), True, draw.replica)
        results: list[Result] = []
        for start in range(0, len(examples), self.block):
            size = min(self.block, len(examples) - start)
            results += await self.gather(size, lambda row, start=start: run(start + row))
            if len(results) < len(examples) and race(filled_scores(results)):
                return Evaluation(workflow, split, tuple(results), False, draw.replica)
        return Evaluation(workflow, split, tuple(results), True, draw.replica)

    async def gather(self, n: int, job: Callable[[int], Any]) -> list[Any]:
        """Run n jobs, at most `concurrency` at once, started in order. The first error stops the rest and is raised. If
        the budget ends, calls in flight are awaited: they are paid for, so they are recorded."""
        results: list[Any] = [None] * n
        following = iter(range(n))
        stop: list[BaseException] = []

        async def worker() -> None:
            for index in following:
                if stop:
                    return
                try:
                    results[index] = await job(index)
                except Exception as error:
                    stop.append(error)
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.concurrency, n)):
                group.create_task(worker())
        if stop:
            raise next((e for e in stop if not isinstance(e, BudgetSpent)), stop[0])
        return results

    async def run_one(
        self, program: Program, example: Example, draw: Draw = FIRST_DRAW, traces: bool = False, split: str = ""
    ) -> Result:
        """Run and score one example. A failure of the workflow or the metric is a Result, not an exception."""
        await self.running.wait()
        began, token = time.time(), current_row.set(number := next(self._numbers))
        try:
            outcome = await program.run(example, draw)
            result = await self._result(example, outcome, traces)
        finally:
            current_row.reset(token)
        if self.on_row is not None:
            self._tell(number, program.workflow, split, draw, result, outcome.trace, began)
        return result

    async def run_unscored(self, workflow: Workflow, example: Example, draw: Draw) -> ExampleRun:
        """Run one example without scoring it."""
        began, token = time.time(), current_row.set(number := next(self._numbers))
        try:
            outcome = await self.program(workflow).run(example, draw)
        finally:
            current_row.reset(token)
        if self.on_row is not None:
            result = Result(example, None, outcome.failure, outcome.message, None, outcome.prediction)
            self._tell(number, workflow, "", draw, result, outcome.trace, began, scored=False)
        return outcome

    def _tell(
        self,
        number: int,
        workflow: Workflow,
        split: str,
        draw: Draw,
        result: Result,
        trace: Trace,
        began: float,
        scored: bool = True,
    ) -> None:
        assert self.on_row is not None
        self.on_row(RowRun(number, workflow, split, draw.replica, result, trace, began, time.time(), scored))

    async def _result(self, example: Example, outcome: ExampleRun, traces: bool) -> Result:
        """Score the outcome of a run."""
        calls = outcome.trace.calls
        cost: dict[str, Any] = {
            "calls": len(calls),
            "tokens": sum(c.response.prompt_tokens + c.response.completion_tokens for c in calls),
            "cached_tokens": sum(c.response.cached for c in calls),
            "usd": sum(c.usd for c in calls),
            "seconds": sum(c.seconds for c in calls),  # journalled, so that a replay sees the same
            "queued": sum(c.queued for c in calls),
            "unreadable_calls": outcome.trace.unreadable_calls,
        }
        trace = outcome.trace if traces else None
        if outcome.failure is not None:
            score = None if FailureKind(outcome.failure).no_result else 0.0
            return Result(
                example, score, outcome.failure, outcome.message, outcome.message, outcome.prediction, trace, **cost
            )
        try:
            scored = await self.score(example, outcome.prediction, outcome.trace)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # a metric's bug is a failure of this example
            if ends_run(error, self.runtime.ledger) or (isinstance(error, LMError) and error.kind == "auth"):
                raise
            kind = kind_of_scoring(error)
            said = f"{type(error).__name__}: {error}"
            if kind in (FailureKind.METRIC, FailureKind.DATA):
                said = self.faults.raised(example, error)
                self.check_metric(MetricFaults.FIRST_ROWS)
            score = None if kind.no_result else 0.0
            return Result(example, score, kind, f"{METRIC_SAID}{said}", None, outcome.prediction, trace, **cost)
        self.faults.scored(example)
        more = await self._score_further(example, outcome.prediction, outcome.trace)
        return Result(
            example, scored.value, None, None, scored.feedback, outcome.prediction, trace, **cost, scores=more
        )

    async def _score_further(
        self, example: Example, prediction: Mapping[str, Any], trace: Trace
    ) -> dict[str, float | None]:
        """Return the scores of the further metrics; None for a metric that raised an error."""
        found: dict[str, float | None] = {}
        for name, metric, faults in self.further:
            try:
                found[name] = (await self._score_by(metric, example, prediction, trace)).value
                faults.scored(example)
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                if ends_run(error, self.runtime.ledger):
                    raise
                faults.raised(example, error)
                found[name] = None
        return found

    def check_metric(self, rows: int) -> None:
        """Raise SpecError if the metric never worked."""
        try:
            self.faults.check(rows)
        except SpecError as error:
            raise self._source.locate(error) if self._source else error from None

    async def score(self, example: Example, prediction: Mapping[str, Any], trace: Trace, name: str = "") -> Score:
        """Return the metric's score of a prediction. Raises whatever it raises. name: use this one of `named`
        instead."""
        return await self._score_by(self.named[name] if name else self.metric, example, prediction, trace)

    async def _score_by(self, metric: Metric, example: Example, prediction: Mapping[str, Any], trace: Trace) -> Score:
        given: dict[str, Any] = {}  # optional arguments, which the protocol does not have
        prediction = copied(prediction)  # a metric may change it
        if getattr(metric, "needs_sandbox", False):
            given["sandbox"] = self._call_in_sandbox
        if getattr(metric, "needs_lm", False):
            self.judged += metric is self.metric
            given["lm"] = self.complete_as("judge", self.judging_spent if metric is self.metric else None)
        if given:
            value = cast(Callable[..., Any], metric)(example, prediction, trace, **given)
        elif getattr(metric, "user_code", False):
            value = await self._score_by_user_code(metric, example, prediction, trace)
        else:
            value = metric(example, prediction, trace)
        if inspect.isawaitable(value):
            value = await value
        return as_score(value, highest_score(metric))

    async def _call_in_sandbox(self, *call: Any, **settings: Any) -> SandboxResult:
        return await (await self.runtime.sandbox()).call(*call, **settings)  # opened on first use

    async def _score_by_user_code(
        self, metric: Metric, example: Example, prediction: Mapping[str, Any], trace: Trace
    ) -> Any:
        """Call the metric in a thread, for one row at a time, since it may not be thread-safe."""
        seconds = self.runtime.timeout
        async with self._user_code:
            try:
                value = await run_in_thread(partial(metric, example, prediction, trace), seconds)
                async with asyncio.timeout(seconds):
                    return await value if inspect.isawaitable(value) else value
            except TimeoutError as error:
                raise TimeoutError(str(error) or f"no score within {seconds:g} s") from None

    @property
    def judging(self) -> Spend:
        """Return the average spending of the metric's model per row. Until a row was scored, it is one call."""
        if not getattr(self.metric, "needs_lm", False):
            return Spend()
        n, spent = self.judged, self.judging_spent
        if not n:
            return Spend(calls=1)
        return Spend(math.ceil(spent.calls / n), 0, math.ceil(spent.tokens / n), 0, spent.usd / n, spent.seconds / n)

    def complete_as(self, role: str, spent: Spend | None = None) -> Callable[..., Any]:
        """Return a coroutine function (messages, *, replica=0, **settings) -> Response, paid under a role. spent:
        accumulates the cost of the calls when they were first paid, so that a replay counts the same."""
        spec = self.runtime.lm_spec(role)

        async def complete(messages: Sequence[Mapping[str, Any]], *, replica: int = 0, **settings: Any) -> Any:
            request = make_request(spec, messages, replica, settings)
            response, paid = await self.runtime.complete(spec, request, role)
            if spent is not None:
                waited = paid.seconds + paid.queued  # the proof reserves its minutes by this
                spent.add(Spend(1, 0, response.prompt_tokens, response.completion_tokens, paid.usd, waited))
            return response.without_thoughts()

        return complete

"""The contract of an optimizer, and its view of a run, the study."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from workbench.errors import ShareSpent
from workbench.ledger import Ledger
from workbench.lm import LM, Response
from workbench.runtime import Draw
from workbench.spec import DomainSpec, LMSpec, TargetsSpec
from workbench.study.evaluate import Evaluator
from workbench.study.evaluation import Evaluation
from workbench.study.racing import Race, paired_race
from workbench.study.standing import Progress
from workbench.task import Example, Score, Space, default_space
from workbench.workflow import ExampleRun, Trace, Workflow


class Optimizer(BaseModel):
    """Base of all optimizers: its fields are its parameters, each with a default and a description.

    `workbench_testing.check_optimizer` checks these rules:
    - Everything with an effect goes through the study. All randomness comes from `study.rng`.
    - BudgetSpent passes, or is caught and ends the search. The best candidate so far is kept in either case.
    - Workflows are never changed in place (they are immutable), and no state is kept between two calls.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    #: Kinds of settings that the optimizer writes if a file leaves them empty, e.g. the functions of an agent.
    fills: ClassVar[Collection[str]] = ()

    async def optimize(self, study: Study) -> Workflow:
        """Search, and return the workflow to continue with: usually `study.best`."""
        raise NotImplementedError

    async def ready(self, study: Study) -> None:
        """Raise an error if `optimize` could not start: a missing package or sandbox, a setting unfit for the rows.

        Called before a run pays for its first call, and by `workbench validate`. It must not call a model. The path of
        a SpecError is relative to the optimizer's parameters. study.workflow is the start of the run, which earlier
        optimizers may still change.
        """

    def missing(self, workflow: Workflow) -> str | None:
        """Return what the workflow is missing for this optimizer, e.g. "an agent with tools"; None if nothing. A file
        is refused if this is not None for its workflow and for all workflows that `search:` can make of it."""
        return None

    def reads_search(self) -> bool:
        """Return True if the optimizer searches the settings under `search:`. If none does, the user is warned."""
        return True

    def max_calls(self, workflow: Workflow, train: Sequence[Example], val: Sequence[Example]) -> int | None:
        """Return the most calls that `optimize` makes on these rows without a budget, for `workbench estimate`.
        Evaluations on val count, retries do not. None if the settings do not bound the number."""
        return None

    def max_rows(self, train: Sequence[Example], val: Sequence[Example]) -> int | None:
        """Return the maximum number of rows that `optimize` runs, for `workbench estimate`. None if the settings do not
        bound it. Ignored if `max_calls` returns a number."""
        return None


@dataclass
class Study:
    """An optimizer's view of a run, without the test split.

    workflow: where to start. train: learn from it. val: select on it. rng: the only source of randomness.
    domains: the `search:` space of the file (see `space`). targets: the field of the label, by output.
    limits: the run's total calls, tokens and usd at which this study ends, see `narrow`.
    levels: the service levels of the file (`targets:`). description: the purpose of the workflow, from the file.
    """

    workflow: Workflow
    train: Sequence[Example]
    val: Sequence[Example]
    evaluator: Evaluator
    ledger: Ledger
    progress: Progress
    rng: random.Random
    seed: int = 0
    objectives: Sequence[str] = ("score",)
    domains: Mapping[str, DomainSpec] = field(default_factory=dict[str, DomainSpec])
    targets: Mapping[str, str] = field(default_factory=dict[str, str])
    name: str = ""
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    levels: TargetsSpec | None = None
    description: str = ""

    @property
    def raced(self) -> bool:
        """Return True if the best score on val wins. Otherwise a candidate with a worse score may be cheaper, so none
        is stopped."""
        return len(self.objectives) == 1 and self.levels is None

    async def evaluate(
        self,
        workflow: Workflow,
        examples: Sequence[Example] | None = None,
        *,
        race: Race | bool = False,
        traces: bool = False,
        replica: int = 0,
        call_replicas: Sequence[int] = (),
    ) -> Evaluation:
        """Score a candidate.

        Args:
            workflow: the candidate.
            examples: default: val.
            race: stop a candidate early that is clearly worse than the best so far (True), or by your own rule. The
                evaluation then has complete=False and cannot win. On val nothing is stopped unless `raced`.
            traces: keep each result's trace.
            replica: another number draws fresh samples wherever there is sampling.
            call_replicas: with a replica above 0, the replicas of a run's calls by their position
                (`workbench.runtime.Draw`). Runs can share their first calls and part later, as the rollouts of a tree.

        Raises:
            BudgetSpent: at the ceiling; its kind ShareSpent before an evaluation that could pass the limit of a
                narrowed study.
        """
        on_val = examples is None
        rows = self.val if examples is None else examples
        self.progress.propose(workflow, self.name)
        known = self.progress.complete.get(workflow.hash)
        if on_val and known is not None and not traces and replica == 0:
            return known
        self._within_limits(self.planned_calls(workflow, rows))
        rule = race if callable(race) else self._race() if race and on_val else None
        rule = None if on_val and not self.raced else rule
        draw = Draw(replica, tuple(call_replicas))
        evaluation = await self.evaluator.evaluate(
            workflow, rows, split="val" if on_val else "train", draw=draw, race=rule, traces=traces
        )
        if on_val and replica == 0:
            await self.record(evaluation)
        elif not on_val and not call_replicas:  # runs that share their first calls are not independent scores
            self.progress.on_rows(evaluation)
        return evaluation

    def _race(self) -> Race | None:
        return paired_race(best.scores) if (best := self.progress.best) is not None else None

    async def record(self, evaluation: Evaluation) -> None:
        """Record an evaluation on val. Its candidate may be the best so far."""
        if evaluation.complete:
            self.progress.add(evaluation)
        await self.progress.on_evaluation(evaluation)

    @property
    def best(self) -> Workflow:
        """Return the candidate with the best score on all of val so far; the start if there is none yet."""
        return self.progress.best.workflow if self.progress.best is not None else self.workflow

    @property
    def best_evaluation(self) -> Evaluation | None:
        return self.progress.best

    def affords(self, workflow: Workflow, examples: Sequence[Example] | None = None) -> bool:
        """Return True if the budget covers the planned calls of an evaluation, without retries and cached calls."""
        rows = self.val if examples is None else examples
        planned, left = self.planned_calls(workflow, rows), self.remaining("calls")
        if left < planned:
            missing = math.ceil(planned - left)
            self.progress.shortfall["calls"] = min(missing, self.progress.shortfall.get("calls", missing))
        return left >= planned

    def planned_calls(self, workflow: Workflow, examples: Sequence[Example]) -> int:
        """Return the most calls to expect of an evaluation, without retries: the workflow's own most, and once rows of
        val were measured, the largest share of it that any of them took. The metric's own calls count by their average.
        Each call is reserved before it is sent, so the ceilings hold however many a row takes."""
        each = math.ceil(self.evaluator.program(workflow).max_calls * (self.progress.used or 1))
        return len(examples) * (each + self.evaluator.judging.calls)

    def remaining(self, what: str = "calls") -> float:
        """Return the calls, tokens, usd or minutes left for search, without the reserve for the proof."""
        left = self.ledger.remaining(what)
        return min(left, max(0.0, self.limits[what] - self._spent(what))) if what in self.limits else left

    def _spent(self, what: str) -> float:
        return getattr(self.ledger.spent, what)

    def _within_limits(self, calls: int) -> None:
        for what, limit in self.limits.items():
            needed = calls if what == "calls" else 0
            if self._spent(what) + needed > limit:
                self.progress.shortfall.setdefault(what, 0)
                raise ShareSpent(what, limit - self._spent(what), needed)

    def log(self, message: str, **figures: Any) -> None:
        """Show a message to the user, and record it in the run's events."""
        self.progress.on_note(self.name, message, figures)

    def record_event(self, kind: str, **data: Any) -> None:
        """Record something in the run's events without showing it."""
        self.ledger.store.event(self.ledger.run_id, kind, optimizer=self.name, **data)

    def known(self, workflow: Workflow) -> Evaluation | None:
        """Return the evaluation of a workflow on all of val; None if there is none."""
        return self.progress.complete.get(workflow.hash)

    @property
    def database(self) -> Path:
        """Return the path of the run database. An optimizer writes its own files next to it."""
        return self.ledger.store.path

    def flush(self) -> None:
        """Commit all queued writes to the run database, before another library opens it."""
        self.ledger.store.flush()

    @property
    def run_id(self) -> int:
        """Return the number of this run in the database."""
        return self.ledger.run_id

    @property
    def seconds(self) -> float:
        """Return the seconds that the run has taken, including earlier processes."""
        return self.ledger.seconds

    @property
    def concurrency(self) -> int:
        """Return the number of examples that run at once."""
        return self.evaluator.concurrency

    def lm(self, role: str = "proposer") -> Callable[..., Awaitable[Response]]:
        """Return a model: a coroutine function (messages, *, temperature, max_tokens, replica, ...) -> Response."""
        complete = self.evaluator.complete_as(role)
        if not self.limits:
            return complete

        async def within_limits(*args: Any, **settings: Any) -> Response:
            self._within_limits(1)
            return await complete(*args, **settings)

        return within_limits

    def role_spec(self, role: str) -> LMSpec | None:
        """Return the language model that the file names for a role, or None. `task` is the workflow's model."""
        if role == "task":
            return self.evaluator.runtime.lm_spec("task", self.workflow)
        return self.evaluator.runtime.roles.get(role)

    def open_lm(self, spec: LMSpec) -> LM:
        """Return the language model object, e.g. to train its weights. For calls use `lm`, which uses the ledger."""
        return self.evaluator.runtime.pool.get(spec)

    async def release_lm(self, spec: LMSpec) -> None:
        """Close a language model that is no longer needed."""
        await self.evaluator.runtime.pool.release(spec)

    async def open_sandbox(self) -> None:
        """Open the sandbox now, so that a machine without one fails early. Raises SandboxError."""
        await self.evaluator.runtime.sandbox()

    async def run(self, workflow: Workflow, example: Example, replica: int = 0) -> ExampleRun:
        """Run a workflow on one example without scoring it. Raises the same errors as `evaluate`."""
        self._within_limits(self.evaluator.program(workflow).max_calls)
        return await self.evaluator.run_unscored(workflow, example, Draw(replica))

    async def score(self, example: Example, prediction: Mapping[str, Any], trace: Trace) -> Score:
        """Return the metric's score of a prediction. Raises whatever the metric raises."""
        return await self.evaluator.score(example, prediction, trace)

    async def sandboxed(
        self, source: str, function: str, arguments: Mapping[str, Any], *, timeout: float = 5.0
    ) -> dict[str, Any]:
        """Run code in the sandbox, journalled. Returns the fields of `workbench.runtime.SandboxResult`."""

        async def run() -> dict[str, Any]:
            sandbox = await self.evaluator.runtime.sandbox()
            return asdict(await sandbox.call(source, function, arguments, timeout=timeout))

        return await self.ledger.effect("code", [source, function, dict(arguments)], run)

    def space(self, domains: Mapping[str, DomainSpec] | None = None) -> Space:
        """Return a search space: the given domains, else those of the file, else the demos of every node."""
        chosen = domains or self.domains or default_space(self.workflow)
        return Space(chosen, self.train, self.targets, self.seed)

    def narrow(
        self,
        *,
        train: Sequence[Example] | None = None,
        val: Sequence[Example] | None = None,
        workflow: Workflow | None = None,
        share: float = 1.0,
        name: str = "",
    ) -> Study:
        """Return a study on other rows or from another start, for an inner optimizer (see `improve`).

        Args:
            train: default: the same rows.
            val: default: the same rows. On other rows the study has its own best, and its evaluations cannot win the
                run.
            workflow: default: the same start.
            share: fraction of the calls, tokens and usd left. Beyond it ShareSpent is raised.
            name: appended to this study's name.
        """
        left = {what: self.remaining(what) for what in ("calls", "tokens", "usd")}
        limits = {w: self._spent(w) + share * n for w, n in left.items() if n < math.inf}
        return replace(
            self,
            train=self.train if train is None else train,
            val=self.val if val is None else val,
            workflow=workflow or self.workflow,
            name=f"{self.name}/{name}" if name else self.name,
            rng=random.Random(self.rng.randrange(2**63)),
            limits=limits if share < 1 else self.limits,
            progress=self.progress if val is None else self.progress.apart(_unrecorded),
        )

    async def take_share(self, left: int) -> Study:
        """Return this study with 1/left of the remaining calls, tokens and usd, for the first of `left` optimizers.

        The last optimizer gets all of the rest. Minutes are not shared: a resumed run would end a share at another
        point.
        """
        part = self.narrow(share=1 / left) if left > 1 else self

        async def limits() -> Mapping[str, float]:
            return part.limits

        if not part.limits:
            return part
        # Journalled, so that a run resumed with a larger budget repeats the search made with the smaller one.
        return replace(part, limits=await self.ledger.effect("share", [self.run_id, self.name, left], limits))

    async def improve(self, optimizer: Optimizer) -> Workflow:
        """Run an inner optimizer on this study, usually a narrowed one, and return its best.

        ShareSpent, at the end of this study's share of the budget, is caught. BudgetSpent, at the end of the run's, is
        not.
        """
        try:
            await optimizer.optimize(self)
        except ShareSpent:
            pass
        return self.best


async def _unrecorded(evaluation: Evaluation) -> None:
    """Do nothing: evaluations on a part of val are not recorded."""

"""`workbench agent attribute`: passes each log to the method, under a budget, with the journal of its own run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.base.concurrency import run_in_loop
from workbench.base.hashing import digest
from workbench.errors import BudgetSpent, SpecError, suggest
from workbench.lm import LMPool
from workbench.spec import BudgetSpec, LMSpec
from workbench_attribute.baselines import BASELINES
from workbench_attribute.diagnoses import AttributionReport, RowFinding
from workbench_attribute.diagnosis import Diagnosis
from workbench_attribute.judges import Answer, Judge
from workbench_attribute.methods import METHODS
from workbench_attribute.prompts import Messages
from workbench_attribute.score import Accuracy, expect_random, score
from workbench_attribute.settings import Judging
from workbench_kit.logs import AskedRun, Command, Log, LogSource, open_run

#: Statuses of a run of this command: while it is running, and when it is done.
WORKING, DONE = "attributing", "attributed"

#: Logs that are judged at the same time.
AT_ONCE = 8


@dataclass
class Attribution:
    """The result.

    Args:
        logs: the logs that were read.
        found: a diagnosis for each log, in order.
        run: the name of the run; None for methods that call no model.
        paid: the requests of this process; those of earlier ones are only in the diagnoses.
    """

    logs: Sequence[Log]
    found: Sequence[Diagnosis]
    run: str | None = None
    paid: dict[str, Any] = field(default_factory=lambda: {"calls": 0, "tokens": 0, "usd": 0.0})

    @property
    def complete(self) -> bool:
        """Return True if the budget was enough for all logs."""
        return all(d.failure != "budget" for d in self.found)

    def agents(self) -> list[tuple[str, int, float]]:
        """Return (agent, logs, share of all logs with a diagnosis), most first."""
        counts = Counter(d.agent for d in self.found if d.agent is not None)
        return [(agent, count, count / counts.total()) for agent, count in counts.most_common()]

    def accuracy(self) -> Accuracy | None:
        """Return the accuracy on logs with known truth."""
        return score(self.found, self.logs)

    def as_dict(self) -> dict[str, Any]:
        accuracy = self.accuracy()
        return {
            "run": self.run,
            "logs": [
                {"log": log.id, **d.as_dict(), "gold_agent": log.gold_agent, "gold_step": log.gold_step}
                for log, d in zip(self.logs, self.found, strict=True)
            ],
            "agents": [{"agent": agent, "logs": count, "share": share} for agent, count, share in self.agents()],
            "accuracy": accuracy and accuracy.as_dict(),
            "baselines": score_baselines(self.logs),
            "paid": self.paid,
        }


def attribute(
    logs: Sequence[Log],
    judging: Judging,
    lm: LMSpec | None = None,
    *,
    database: str = "workbench.db",
    calls: int | None = None,
    examined: str | None = None,
    pool: LMPool | None = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Attribution:
    """Name the agent and the step that decided the failure of each log.

    A call with the same logs, settings, model and database continues where an earlier one stopped: paid answers come
    from the journal, and a finished call pays nothing. Answers to equal requests of other runs are reused, too: the
    hybrid after `all-at-once` does not pay for its proposals.

    Args:
        logs: the runs that failed.
        judging: the method and its settings.
        lm: the judge; not needed by methods that call none.
        database: path of the run database.
        calls: maximum requests, including those of earlier calls with the same arguments; None: no limit.
        examined: the name of the run with these logs, by which `workbench show` finds the diagnoses.
        pool: replaces the plugins' language models, for tests.
        on_progress: called after each log with the number of logs done, and of all.

    Raises:
        SpecError: there is no such method, or no judge for it.
        StoreError: the database cannot be used.
    """
    if judging.method not in METHODS:
        raise SpecError(f"there is no method '{judging.method}'", hint=suggest(judging.method, METHODS))
    if judging.method in BASELINES:
        return Attribution(logs, diagnose_without_model(logs, judging))
    if lm is None:
        raise SpecError(
            f"the method {judging.method} asks a language model, and none is named",
            hint="Name it with --lm MODEL, e.g. --lm openai/gpt-4.1-mini, or --lm openai/NAME --api-base "
            f"http://127.0.0.1:8000/v1. Without a model: --method {' or '.join(BASELINES)}.",
        )
    command = Command(
        "attribute",
        "attribution",
        WORKING,
        DONE,
        judging.model_dump(mode="json"),
        {"logs": digest([log.as_dict() for log in logs])},
        judging.seed,
    )
    with open_run(database, command, lm, BudgetSpec.model_validate({"calls": calls}), pool or LMPool()) as run:
        runs = [*_examined(run), *([examined] if examined else [])]
        return run.go(_Course(logs, judging, run, on_progress).go(list(dict.fromkeys(runs))))


def report_of(found: Attribution, method: str, examined: Sequence[str]) -> AttributionReport:
    """Return a result in its stored form. examined: the runs with these logs."""
    pairs = zip(found.logs, found.found, strict=True)
    return AttributionReport(found.run or "", method, examined, [_finding(log, d) for log, d in pairs])


def _finding(log: Log, d: Diagnosis) -> RowFinding:
    row = log.row or LogSource(log.id, 0, "")
    return RowFinding(
        row.example,
        row.candidate or None,
        row.replica,
        row.score,
        node=None if d.step is None else log.steps[d.step].node,
        agent=d.agent,
        step=d.step,
        steps=len(log.steps),
        confidence=d.confidence,
        calls=d.calls,
        usd=d.usd,
        evidence=d.evidence,
        failure=d.failure or "",
        handle=row.handle,
    )


def _examined(run: AskedRun) -> list[str]:
    """Return the runs whose logs this one judged before: equal logs of two runs are judged once."""
    return list((run.read_report() or {}).get("examined", ()))


def diagnose_without_model(logs: Sequence[Log], judging: Judging) -> list[Diagnosis]:
    """Return the diagnoses of a method that calls no model."""

    async def refuse(messages: Messages, vote: int) -> Answer:
        raise AssertionError("a baseline asked a model")

    async def main() -> list[Diagnosis]:
        judge = Judge(refuse, judging, logs)
        return [await METHODS[judging.method](log, judge) for log in logs]

    return run_in_loop(main())


def score_baselines(logs: Sequence[Log]) -> dict[str, dict[str, float]]:
    """Return the accuracy of agent and step by baseline; random draws by their average. Empty if no truth is known."""
    expected = expect_random(logs)
    if expected is None:
        return {}
    found = {"random": {"agent": expected[0], "step": expected[1]}}
    judging = Judging.model_validate({})
    for name in BASELINES:
        if name != "random":
            accuracy = score(diagnose_without_model(logs, judging.model_copy(update={"method": name})), logs)
            assert accuracy is not None
            found[name] = {"agent": accuracy.agent, "step": accuracy.step}
    return found


class _Course:
    """The judgement of all logs, several at once. Each answer is journaled before it is read."""

    def __init__(self, logs: Sequence[Log], judging: Judging, run: AskedRun, on_progress: Callable[[int, int], None]):
        self.logs, self.judging, self.run = logs, judging, run
        self.on_progress, self.done = on_progress, 0
        self.slots = asyncio.Semaphore(AT_ONCE)

    async def go(self, examined: Sequence[str]) -> Attribution:
        """Judge the logs, and store the findings. examined: the runs with these logs."""
        result = Attribution(self.logs, await self._diagnose_all(), self.run.run, self.run.paid)
        method = f"{self.judging.method}, judged by {self.run.runtime.lm.model}"
        self.run.end_with_report(DONE, report_of(result, method, examined).as_dict())
        return result

    async def _diagnose_all(self) -> list[Diagnosis]:
        found = await asyncio.gather(*map(self._diagnose, self.logs), return_exceptions=True)
        diagnoses = []
        for one in found:  # all have ended: calls in flight are paid, and recorded
            if isinstance(one, BaseException):
                raise one
            diagnoses.append(one)
        if any(d.failure == "budget" for d in diagnoses):
            self.run.ledger.bill.check_answered()
        return diagnoses

    async def _diagnose(self, log: Log) -> Diagnosis:
        judge = Judge(self._ask, self.judging, self.logs)
        async with self.slots:
            try:
                found = await METHODS[self.judging.method](log, judge)
            except BudgetSpent as error:
                spent = {"calls": judge.calls, "usd": judge.usd, "unread": judge.unread}
                return Diagnosis(None, None, 0.0, str(error), method=self.judging.method, failure="budget", **spent)
        self.done += 1
        self.run.save_seconds()
        self.on_progress(self.done, len(self.logs))
        return found

    async def _ask(self, messages: Messages, vote: int) -> Answer:
        judging = self.judging
        response, settled = await self.run.ask(
            messages, vote, "judge", temperature=judging.heat, max_tokens=judging.max_tokens
        )
        return Answer(response.text, response.finish, settled.attempts, settled.usd)

"""Methods that name the agent and the step that decided a failure. `METHODS` has them by name.

Source: Who&When (Zhang et al., "Which Agent Causes Task Failures and When?", arXiv 2505.00212): all-at-once,
step-by-step, binary search, and the hybrid of the first two. Departures, each to avoid a fault of the published code:

- An answer that cannot be read is counted (`unread`), and never taken for a finding. If binary search cannot continue
  without one, it flips a coin, as there, but a seeded one, and each coin halves the weight of the vote. It flips none
  for a judge that cannot be reached, and a search by coins alone is not a finding.
- A log longer than the window is shown in parts: all-at-once asks about each part and then about the steps that these
  named; step-by-step shows the last steps that fit; binary search cuts the longest steps.
- Votes: each method can be run several times; the pair of agent and step that most runs named wins.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from workbench.errors import FailureKind, LMError
from workbench_attribute import prompts
from workbench_attribute.diagnosis import Diagnosis
from workbench_attribute.prompts import Messages, Unreadable
from workbench_attribute.settings import Judging
from workbench_kit.logs import TOKEN, Log

#: The judge saw no mistake at any step.
NO_FAULT = "no_fault"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the judge. finish: as in `workbench.lm.Response`. calls: attempts that were sent."""

    text: str
    finish: str = "stop"
    calls: int = 1
    usd: float = 0.0


#: A line in more than this share of the logs is the system's own.
_SHARED = 0.8
#: Sends messages to the judge. The number is the vote's, which draws a fresh sample. Raises LMError.
Ask = Callable[[Messages, int], Awaitable[Answer]]


@dataclass
class Judge:
    """The services for a method on a log. logs: all those of the command, for baselines that compare. It counts calls,
    cost and answers that could not be read."""

    ask: Ask
    settings: Judging = field(default_factory=lambda: Judging.model_validate({}))
    logs: Sequence[Log] = ()
    calls: int = 0
    usd: float = 0.0
    unread: int = 0

    @property
    def room(self) -> int:
        """Maximum characters of a log in one prompt."""
        return self.settings.window * TOKEN

    @cached_property
    def shared_lines(self) -> frozenset[str]:
        """The lines that occur in most of the logs, if there are at least three logs."""
        if len(self.logs) < 3:
            return frozenset()
        lines = Counter[str]()
        for log in self.logs:
            lines.update({line.strip() for step in log.steps for line in step.content.splitlines()})
        return frozenset(line for line, count in lines.items() if line and count > _SHARED * len(self.logs))

    def rng(self, log: Log, vote: int = 0) -> random.Random:
        """Return a generator that depends only on the seed, the log and the vote."""
        return random.Random(f"{self.settings.seed}:{log.id}:{vote}")

    async def text(self, messages: Messages, vote: int) -> str:
        """Return the text of an answer. Raises Unreadable, also for a failed call, and errors that end a run."""
        try:
            answer = await self.ask(messages, vote)
        except LMError as error:
            if error.kind == FailureKind.AUTH:
                raise
            self.calls += 1
            raise Unreadable(FailureKind(error.kind), str(error)) from error
        self.calls += answer.calls
        self.usd += answer.usd
        if answer.finish == "refusal":
            raise Unreadable(FailureKind.REFUSED, f"the judge refused: {answer.text[:200]!r}")
        if not answer.text.strip():
            raise Unreadable(FailureKind.EMPTY, "the judge gave an empty answer")
        return answer.text


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one vote: an agent and a step, or the kind of failure. coins: the number of coins flipped."""

    agent: str | None
    step: int | None
    reason: str
    failure: str | None = None
    coins: int = 0


Find = Callable[[Log, Judge, int], Awaitable[Finding]]
Method = Callable[[Log, Judge], Awaitable[Diagnosis]]


async def find_all_at_once(log: Log, judge: Judge, vote: int) -> Finding:
    """Call the judge on the whole log. With windows: once for each, and once on the steps that these named."""
    windows = prompts.split_windows(log, judge.room)
    found = [await _mistake(log, window, judge, vote) for window in windows]
    named = [finding for finding in found if finding.step is not None]
    if len(named) > 1:
        return await _mistake(log, sorted({f.step for f in named if f.step is not None}), judge, vote)
    return named[0] if named else found[0]


async def _mistake(log: Log, numbers: Sequence[int], judge: Judge, vote: int) -> Finding:
    messages = prompts.ask_all_at_once(log, numbers, judge.settings.ground_truth, judge.room)
    try:
        return Finding(*prompts.read_mistake(await judge.text(messages, vote), log, numbers))
    except Unreadable as error:
        judge.unread += 1
        return Finding(None, None, str(error), str(error.kind))


async def find_step_by_step(log: Log, judge: Judge, vote: int) -> Finding:
    """Call the judge for each step, with the steps before it, until it says yes."""
    return await _first_yes(log, range(len(log.steps)), judge, vote)


async def _first_yes(log: Log, numbers: Iterable[int], judge: Judge, vote: int) -> Finding:
    unread: Unreadable | None = None
    for number in numbers:
        messages = prompts.ask_step(log, number, judge.settings.ground_truth, judge.room)
        try:
            yes, reason = prompts.read_choice(await judge.text(messages, vote), "yes", "no")
        except Unreadable as error:
            judge.unread += 1
            unread = unread or error
            continue
        if yes:
            return Finding(log.steps[number].agent, number, reason)
    if unread is not None:
        return Finding(None, None, str(unread), str(unread.kind))
    return Finding(None, None, "the judge saw no mistake at any step", NO_FAULT)


async def find_by_halves(log: Log, judge: Judge, vote: int) -> Finding:
    """Halve the steps until one is left, with at most ceil(log2 n) calls for n steps."""
    first, last, reason = 0, len(log.steps) - 1, "the log has one step"
    coin, lost, answered = judge.rng(log, vote), list[Unreadable](), 0
    while first < last:
        middle = first + (last - first) // 2
        messages = prompts.ask_half(log, first, middle, last, judge.settings.ground_truth, judge.room)
        try:
            earlier, said = prompts.read_choice(await judge.text(messages, vote), "first", "second")
            answered += 1
        except Unreadable as error:
            judge.unread += 1
            lost.append(error)
            if error.kind.infrastructure:
                break
            earlier, said = coin.random() < 0.5, f"a coin decided between the halves, for {error}"
        first, last, reason = (first, middle, said) if earlier else (middle + 1, last, said)
    if lost and (not answered or lost[-1].kind.infrastructure):
        return Finding(None, None, str(lost[-1]), str(lost[-1].kind))
    return Finding(log.steps[first].agent, first, reason, coins=len(lost))


async def find_hybrid(log: Log, judge: Judge, vote: int) -> Finding:
    """Let all-at-once propose an agent, then check only its steps with step-by-step. If no step is confirmed, the
    proposal stands, and the reason says so."""
    proposed = await find_all_at_once(log, judge, vote)
    if proposed.agent is None:
        return proposed
    own = [number for number, step in enumerate(log.steps) if step.agent == proposed.agent]
    checked = await _first_yes(log, own, judge, vote)
    if checked.step is not None:
        return checked
    return Finding(proposed.agent, proposed.step, f"proposed, and not confirmed step by step: {proposed.reason}")


# Votes


def voted(name: str, find: Find) -> Method:
    """Return a method that runs `find` once for each vote."""

    async def diagnose(log: Log, judge: Judge) -> Diagnosis:
        findings = [await find(log, judge, vote) for vote in range(judge.settings.votes)]
        return count_votes(name, log, findings, judge)

    return diagnose


def count_votes(name: str, log: Log, findings: Sequence[Finding], judge: Judge) -> Diagnosis:
    """Return the pair of agent and step with the most votes. Ties are broken by the seed. Votes without a result reduce
    the confidence, and those by coins count less."""
    counts = dict[tuple[str | None, int], float]()
    for f in findings:
        if f.step is not None:
            counts[f.agent, f.step] = counts.get((f.agent, f.step), 0.0) + 0.5**f.coins
    spent = {"calls": judge.calls, "usd": judge.usd, "method": name, "unread": judge.unread, "votes": len(findings)}
    if not counts:
        return Diagnosis(None, None, 0.0, findings[0].reason, failure=findings[0].failure, **spent)
    most = max(counts.values())
    tied = sorted((pair for pair, count in counts.items() if count == most), key=str)
    agent, step = judge.rng(log, -1).choice(tied)
    reason = next(f.reason for f in findings if (f.agent, f.step) == (agent, step))
    return Diagnosis(agent, step, most / len(findings), reason, **spent)


FINDERS: dict[str, Find] = {
    "all-at-once": find_all_at_once,
    "step-by-step": find_step_by_step,
    "binary": find_by_halves,
    "hybrid": find_hybrid,
}
#: The methods that call a judge.
JUDGES: dict[str, Method] = {name: voted(name, find) for name, find in FINDERS.items()}

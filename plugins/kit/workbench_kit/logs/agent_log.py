"""The log of one run of one or more agents: its steps, from spans and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench.base.text import short
from workbench.lm import content_text

#: Returns the messages of a call, given as in its span.
PromptOf = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]

#: Characters per token, as reservations of the ledger count them, and the minimum that is shown of a step.
TOKEN, MIN = 3, 60


@dataclass(frozen=True, slots=True)
class LogStep:
    """A step of an agent: an answer of a model, the result of a tool, the outputs of a node.

    Args:
        agent: who acted; for a tool's result, who called the tool.
        content: the text.
        role: the agent's part by the log, e.g. `user`, or `tool search`.
        error: how the step failed, if the log states it.
        node: in our own runs, the path of the node in the workflow.
    """

    agent: str
    content: str
    role: str = ""
    error: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class LogSource:
    """The result of our run that a log was made from: the row, the repeat, the hash of the workflow. handle: of the
    row."""

    example: str
    replica: int
    candidate: str
    score: float | None = None
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """A run. Steps count from 0.

    Args:
        id: names the log: a file, or a row of a run.
        steps: in chronological order; at least one.
        question: the problem that the run was to solve.
        ground_truth: the right answer; None if it is unknown or must not be read.
        outcome: the result, without anything of the right answer.
        gold_agent, gold_step: the agent and step known to have decided the failure.
        sealed: whether the row is sealed, so that the log has nothing of a right answer.
        row: set if the log is of our own run.
        score: from 0 to 1, if a file states it.
    """

    id: str
    steps: tuple[LogStep, ...]
    question: str = ""
    ground_truth: str | None = None
    outcome: str = ""
    gold_agent: str | None = None
    gold_step: int | None = None
    sealed: bool = False
    row: LogSource | None = None
    score: float | None = None

    @property
    def agents(self) -> list[str]:
        """Return each agent once, in the order of their first steps."""
        return list(dict.fromkeys(step.agent for step in self.steps))

    @property
    def has_gold(self) -> bool:
        return self.gold_agent is not None and self.gold_step is not None

    def as_dict(self) -> dict[str, Any]:
        """Return the parts that a judge may read. Leave out the storage place: equal logs of two runs are
        judged once."""
        return {name: value for name, value in asdict(self).items() if name != "row"}


# As text


def shorten(text: str, most: int) -> str:
    """Return a text without its middle, if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    return f"{text[:head]} [... {len(text) - most} characters left out ...] {text[len(text) - (most - head) :]}"


def step_text(step: LogStep) -> str:
    """Return the text of a step, its error included."""
    return f"{step.content}\nERROR: {step.error}" if step.error else step.content


def _line(number: int, step: LogStep, most: int) -> str:
    """Format a step. Later lines are indented, so that they cannot look like steps."""
    who = f"{step.agent} ({step.role})" if step.role and step.role != step.agent else step.agent
    return f"Step {number}, {who}: {shorten(step_text(step), most)}".replace("\n", "\n    ")


def show_steps(log: Log, numbers: Sequence[int], room: int) -> str:
    """Format steps in about `room` characters at most: the longest are cut, all to one length."""
    lengths = sorted(len(step_text(log.steps[n])) for n in numbers)
    left, cap = room, MIN
    for place, length in enumerate(lengths):
        share = left // (len(lengths) - place)
        cap = max(MIN, share if length > share else length)
        if length > share:
            break
        left -= length
    return "\n".join(_line(n, log.steps[n], cap) for n in numbers)


def field_lines(fields: Mapping[str, Any]) -> str:
    """Format fields as text, one line each."""
    return "\n".join(f"{k}: {v if isinstance(v, str) else short(v, 4000)}" for k, v in fields.items())


# Spans as steps


def read_steps(spans: Sequence[Mapping[str, Any]], prompt_of: PromptOf) -> Iterator[LogStep]:
    """Yield the steps of spans in the form of `workbench.workflow.Span.as_dict`.

    A node comes after its inner nodes, whose outputs make up its own. prompt_of: returns the messages of a call, given
    as in the span; none if they are unknown.
    """
    place = 0
    while place < len(spans):
        inside = place + 1
        while inside < len(spans) and str(spans[inside]["node"]).startswith(f"{spans[place]['node']}."):
            inside += 1
        yield from read_steps(spans[place + 1 : inside], prompt_of)
        yield from _span_steps(spans[place], prompt_of)
        place = inside


def _span_steps(span: Mapping[str, Any], prompt_of: PromptOf) -> Iterator[LogStep]:
    node = str(span["node"])
    agent = str(span.get("agent") or node)
    outputs = LogStep(agent, field_lines(span.get("outputs") or {}), error=span.get("error"), node=node)
    calls = span.get("calls") or []
    tools = (span.get("notes") or {}).get("tools") or []
    if len(calls) < 2 and not tools:
        said = str(calls[0]["text"]) if calls and not outputs.content else ""
        yield outputs if outputs.content or not said else LogStep(agent, said, error=outputs.error, node=node)
        return
    before: Sequence[Mapping[str, Any]] = ()
    results: list[str] = []
    for number, call in enumerate(calls):
        prompt = prompt_of(call)
        # A prompt that continues the one before it contains the messages in between; others are separate calls.
        if number and len(prompt) > len(before) and list(prompt[: len(before)]) == list(before):
            told = [content_text(m.get("content")) for m in prompt[len(before) :] if m.get("role") != "assistant"]
            yield from (LogStep(agent, text, "result", node=node) for text in told)
            results += told
        before = prompt
        yield LogStep(agent, str(call["text"]) or "(a call of a tool)", "answer", node=node)
    for tool in tools:  # those in no later prompt
        if not any(text.startswith(str(tool.get("result"))) for text in results):
            text = f"{tool.get('name')}({short(tool.get('arguments'), 500)}) gave {tool.get('result')}"
            yield LogStep(agent, text, "result", node=node)
    if outputs.content or outputs.error:
        yield LogStep(agent, outputs.content, "outputs", outputs.error, node)

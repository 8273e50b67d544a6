"""The record of a workflow's run on an example: its nodes, their calls, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.lm import Message, Response


@dataclass(slots=True)
class CallRecord:
    """An LM call inside a span. With token ids and log-probabilities it is a step of a rollout.

    tools: that were offered. response_format: of the answer that was asked for. seconds: of its requests. queued: those
    that it waited for a slot, a rate limit or another attempt.
    state, earned: for a step in an environment, the state it was taken in and its reward (`Context.step`).
    """

    messages: tuple[Message, ...]
    response: Response
    role: str
    lm: str
    cached: bool
    usd: float
    seconds: float = 0.0
    queued: float = 0.0
    state: str | None = None
    earned: float | None = None
    key: str = ""  # under which the journal has it
    tools: tuple[Mapping[str, Any], ...] = ()
    response_format: Mapping[str, Any] | None = None
    number: int = 0  # among the calls of its span, from 1, in the order of their beginnings; failed ones count, too
    max_tokens: int = 0
    most_usd: float | None = None
    most_seconds: float = 0.0
    at: int = field(default=0, compare=False)  # its place in the trace (`Trace.tick`)
    began: float = field(default=0.0, compare=False)  # in this process, in seconds since 1970; a replay takes no time


@dataclass(slots=True)
class EffectRecord:
    """A tool call or another effect inside a span.

    content: what identifies it, as `Context.effect` got it. result: None after an error. replayed: the journal had it.
    """

    kind: str
    content: Any
    began: float
    seconds: float = 0.0
    result: Any = None
    error: str | None = None
    replayed: bool = False


@dataclass(slots=True)
class Span:
    """A run of one node. agent and turn identify the step of a multi-turn, multi-agent rollout.

    seconds: from its start to its end, without those in which its calls only waited (`queued`). Calls at the same time
    count once.
    """

    node: str
    kind: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    calls: list[CallRecord] = field(default_factory=list[CallRecord])
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    agent: str | None = None
    turn: int | None = None
    seconds: float = 0.0
    queued: float = 0.0
    error: str | None = None
    order: tuple[int, ...] = ()  # its place among the spans of the trace (`Context`)
    at: int = field(default=0, compare=False)  # when it began (`Trace.tick`)
    began: float = field(default=0.0, compare=False)  # in seconds since 1970
    effects: list[EffectRecord] = field(default_factory=list[EffectRecord], compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return what the store keeps. Prompts are stored with the calls, so here are only answers and counts."""
        out: dict[str, Any] = {"node": self.node, "kind": self.kind, "seconds": round(self.seconds, 4)}
        out["outputs"] = dict(self.outputs)
        out["calls"] = [
            {
                "role": c.role,
                "text": c.response.text,
                "finish": c.response.finish,
                "tokens": [c.response.prompt_tokens, c.response.completion_tokens],
                "usd": c.usd,
                "seconds": round(c.seconds, 4),
                **({"key": c.key} if c.key else {}),
            }
            for c in self.calls
        ]
        if self.queued >= 1e-4:
            out["queued"] = round(self.queued, 4)
        for name in ("notes", "agent", "turn", "error"):
            if getattr(self, name):
                out[name] = getattr(self, name)
        return out


@dataclass(slots=True)
class Trace:
    """An example through one workflow.

    Spans are in the order of the nodes and, within a node, of replica and start. So the order does not depend on which
    of several was faster, and a replay sees the same.
    """

    example: str
    spans: list[Span] = field(default_factory=list[Span])
    repaired: list[str] = field(default_factory=list[str], compare=False, repr=False)  # steps, see `runtime.Repair`
    _ticks: int = field(default=0, compare=False, repr=False)

    def tick(self) -> int:
        """The next number, in the order in which spans and calls begin."""
        self._ticks += 1
        return self._ticks

    @property
    def calls(self) -> list[CallRecord]:
        return [call for span in self.spans for call in span.calls]

    @property
    def unreadable_calls(self) -> int:
        """Count the tool calls in a form that could not be read."""
        return sum(len(span.notes.get("unreadable_calls", ())) for span in self.spans)

    @property
    def rollout(self) -> list[dict[str, Any]]:
        """The task's calls that were recorded at token level, in order, one dict each: the input of training."""
        return [
            {
                "agent": span.agent or span.node,
                "turn": span.turn or 0,
                "prompt_ids": c.response.prompt_ids,
                "token_ids": c.response.token_ids,
                "logprobs": c.response.logprobs,
                "text": c.response.text,
                "state": c.state,
                "earned": c.earned,
            }
            for span in self.spans
            for c in span.calls
            if c.role == "task" and c.response.token_ids is not None
        ]


@dataclass(frozen=True, slots=True)
class ExampleRun:
    """The result of one workflow on one example: a prediction, or a failure with its kind and message."""

    prediction: Mapping[str, Any]
    trace: Trace
    failure: str | None = None
    message: str | None = None
    seconds: float = 0.0

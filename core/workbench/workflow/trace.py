"""Records of a workflow's run on an example: its nodes, their calls, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.lm import Message, Response


@dataclass(slots=True)
class CallRecord:
    """An LM call inside a span. With token ids and log-probabilities it is a step of a rollout.

    tools: the tools offered. response_format: the format requested. seconds: time in requests. queued: seconds spent
    waiting for a slot, a rate limit or another attempt.
    state, earned: for a step in an environment, the state before it and its reward (`Context.step`).
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
    key: str = ""  # its key in the journal
    tools: tuple[Mapping[str, Any], ...] = ()
    response_format: Mapping[str, Any] | None = None
    number: int = 0  # among the calls of its span, from 1, in order of start; failed ones count, too
    max_tokens: int = 0
    max_usd: float | None = None
    max_seconds: float = 0.0
    at: int = field(default=0, compare=False)  # its position in the trace (`Trace.tick`)
    began: float = field(default=0.0, compare=False)  # in this process, in seconds since 1970; a replay takes no time


@dataclass(slots=True)
class EffectRecord:
    """A tool call or another effect inside a span.

    content: the identity of the effect, as passed to `Context.effect`. result: None after an error. replayed: True if
    the result came from the journal.
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

    seconds: from start to end, without the time in which its calls only waited (`queued`). Time of concurrent calls
    counts once.
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
    order: tuple[int, ...] = ()  # its position among the spans of the trace (`Context`)
    at: int = field(default=0, compare=False)  # its start (`Trace.tick`)
    began: float = field(default=0.0, compare=False)  # in seconds since 1970
    effects: list[EffectRecord] = field(default_factory=list[EffectRecord], compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the stored form: only answers and counts, because prompts are stored with the calls."""
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
    """The trace of one example through a workflow. Spans are sorted by node and, within a node, by replica and start.
    So their order does not depend on timing, and a replay gives the same."""

    example: str
    spans: list[Span] = field(default_factory=list[Span])
    repaired: list[str] = field(default_factory=list[str], compare=False, repr=False)  # steps, see `runtime.Repair`
    _ticks: int = field(default=0, compare=False, repr=False)

    def tick(self) -> int:
        """Return the next number in the order in which spans and calls begin."""
        self._ticks += 1
        return self._ticks

    @property
    def calls(self) -> list[CallRecord]:
        return [call for span in self.spans for call in span.calls]

    @property
    def unreadable_calls(self) -> int:
        """Count the tool calls that could not be parsed."""
        return sum(len(span.notes.get("unreadable_calls", ())) for span in self.spans)

    @property
    def rollout(self) -> list[dict[str, Any]]:
        """Return the task's calls that were recorded at token level, in order, one dict each, as input for training."""
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

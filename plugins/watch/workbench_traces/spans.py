"""Turns of spans: the GenAI conventions of OpenTelemetry, and OpenInference as exported by Phoenix.

A trace is a turn. Its question and answer come from its root span if recorded there, else from its last model call. The
chat is that of this call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench_kit.logs import CONVENTIONS, LogSpan, read_spans
from workbench_kit.wire import is_thought
from workbench_traces.turn import (
    Collector,
    Message,
    Trace,
    Turn,
    as_text,
    asked_text,
    first_value,
    listed,
    parsed,
    read_messages,
    read_score,
    read_time,
    said_text,
)

_CONVERSATION = ("gen_ai.conversation.id", "session.id", "langfuse.session.id", "conversation.id", "thread.id")
_USER = ("user.id", "enduser.id", "langfuse.user.id", "gen_ai.user.id")

#: Events of the conventions up to 1.36, one for each message.
_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_ROLES |= {"gen_ai.content.prompt": "user"}
#: Attributes of an event with its text, of all instrumentations, the most specific first.
_CONTENTS = (
    "gen_ai.event.content",
    "gen_ai.prompt",
    "gen_ai.completion",
    "content",
    "body",
    "message",
    "message.content",
)
_ANSWERS = ("gen_ai.choice", "gen_ai.content.completion")


#: Attributes of a span with the question and the answer of a whole trace.
_ROOT_ASKED, _ROOT_SAID = ("input.value", "traceloop.entity.input"), ("output.value", "traceloop.entity.output")
_VERCEL_ANSWERS = ("ai.response.text", "ai.result.text", "ai.response.object", "ai.result.object")


class SpanTurns(Collector):
    """Collects the turns of spans."""

    def __init__(self, wanted: tuple[str, str] = ("", "")) -> None:
        super().__init__(wanted)
        self.of_span: dict[str, str] = {}  # the trace of each span
        self.logged: dict[tuple[str, str], list[tuple[float, str, dict[str, Any]]]] = {}
        self.notes: list[dict[str, Any]] = []
        self.file = ""

    def add_value(self, value: Any, file: str) -> None:
        """Add a JSON value: OTLP with spans or log records, a span, a list of them, or an annotation."""
        self.file = self.file or file
        if is_dict(value) and is_list(value.get("resourceLogs")):
            for record in log_records(value["resourceLogs"]):
                self._add_record(record)
        elif is_dict(value) and is_dict(value.get("result")) and value.get("span_id") and "attributes" not in value:
            self.notes.append(value)
        else:
            value = unflattened(value) if is_dict(value) else value
            told = [note for note in listed(value.get("annotations")) if is_dict(note)] if is_dict(value) else []
            for span in read_spans(value, Path(file), ""):
                self.add(span, file)
                self.notes += [{**note, "span_id": span.id} for note in told]

    def _add_record(self, record: Mapping[str, Any]) -> None:
        """Add an event of the GenAI conventions that was exported as a log record."""
        flat = read_spans({"attributes": record.get("attributes") or {}}, Path(), "")[0].attributes
        body = any_value(record.get("body"))
        name = as_text(record.get("eventName") or flat.get("event.name"))
        if name.startswith("gen_ai."):
            key = (as_text(record.get("traceId")), as_text(record.get("spanId")))
            at = read_time(record.get("timeUnixNano") or record.get("observedTimeUnixNano")) or 0.0
            inside = {**flat, **({"body": body} if body is not None else {})}
            self.logged.setdefault(key, []).append((at, name, inside))

    def add(self, span: LogSpan, file: str) -> None:
        """Add one span."""
        self.of_span[span.id] = span.trace or span.id
        kind = "openinference" if CONVENTIONS["openinference"].of(span) else "otel"
        trace = self.trace(span.trace or span.id, {"file": file, "format": kind, "id": span.trace})
        turn, a = trace.turn, span.attributes
        if "workbench.run" not in a:  # its session is the run, so that a tool shows it as a whole
            turn.conversation = turn.conversation or first_value(a, _CONVERSATION)
        turn.user = turn.user or first_value(a, _USER)
        began = read_time(span.start[0] or span.start[1])
        turn.begin(began)
        _read_calls(span, trace, began or 0.0)
        asked, said = (next((a[n] for n in names if a.get(n) is not None), None) for names in (_ROOT_ASKED, _ROOT_SAID))
        if not span.parent and asked is not None and said is not None:
            trace.take(asked_text(_arguments(asked)), said_text(_arguments(said)), 2)
        turn.unread += [sorted(a)]
        for recorded in (a, *(inside for _, inside in span.events)):
            _read_outcome(recorded, turn, self.wanted)

    def turns(self) -> Iterator[Turn]:
        """Yield the turns, one per trace."""
        for (trace_id, span), events in self.logged.items():
            at = min(at for at, _, _ in events)
            told = tuple((name, inside) for _, name, inside in sorted(events, key=lambda e: e[0]))
            whole = {k: v for _, inside in told for k, v in inside.items() if k.startswith("gen_ai.")}
            start = (round(at * 1e9), "")
            self.add(LogSpan(trace_id, span, "a span", "", start, whole, None, told), self.file)
        for note in self.notes:
            trace = self.traces.get(self.of_span.get(as_text(note.get("span_id")), ""))
            if trace is not None:
                read_annotation(note, trace.turn)
        yield from super().turns()


def _arguments(value: Any) -> Any:
    """Read the input of a call as OpenLLMetry records it: `{"inputs": {...}, "args": [...]}`."""
    told = parsed(value)
    if isinstance(told, str) and told[:1] == '"':  # OpenLLMetry records texts as JSON, too
        return json_text(told)
    if not is_dict(told) or not told.keys() <= {"inputs", "outputs", "args", "kwargs", "tags", "metadata"}:
        return value
    return told.get("inputs") or told.get("outputs") or told.get("kwargs") or (told.get("args") or [value])[0]


def json_text(value: str) -> str:
    """Return the text in a JSON string; the value itself if it is not JSON."""
    try:
        return str(json.loads(value))
    except ValueError:
        return value


def _vercel_prompt(a: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a Vercel AI SDK call: `ai.prompt.messages`, or `ai.prompt` with `system` and `prompt`."""
    if chat := read_messages(a.get("ai.prompt.messages")):
        return chat
    told = parsed(a.get("ai.prompt"))
    if not is_dict(told):
        return [("user", as_text(told))] if told else []
    system = [("system", as_text(told["system"]))] if told.get("system") else []
    asked = [("user", as_text(told["prompt"]))] if isinstance(told.get("prompt"), str) else []
    return [*system, *(read_messages(told.get("messages") or told.get("prompt")) or asked)]


def _read_calls(span: LogSpan, trace: Trace, began: float) -> None:
    chat, answer = span_chat(span)
    if answer and began >= trace.called and not (trace.called >= 0 and not chat):
        trace.called, trace.turn.messages = began, chat
        trace.take(next((text for role, text in reversed(chat) if role == "user"), ""), answer, 1)


def span_chat(span: LogSpan) -> tuple[list[Message], str]:
    """Return the messages of a model call, and its answer; empty for any other span.

    A span may record the same content in several conventions, of which the first is used.
    """
    a = span.attributes
    chat = (
        read_messages(a.get("gen_ai.input.messages"))
        or [(_ROLES[name], _event_text(inside)) for name, inside in span.events if name in _ROLES]
        or _numbered(a, "llm.input_messages")
        or _numbered(a, "gen_ai.prompt")
        or _vercel_prompt(a)
    )
    chat = [*(one for one in _instructions(a) if one not in chat), *chat]
    said = [text for _, text in read_messages(a.get("gen_ai.output.messages"))]
    said += [_event_text(inside) for name, inside in span.events if name in _ANSWERS]
    said += [text for _, text in _numbered(a, "llm.output_messages") or _numbered(a, "gen_ai.completion")]
    said += [as_text(a[name]) for name in _VERCEL_ANSWERS if a.get(name)]
    return chat, next((text for text in said if text), "")


def _instructions(a: Mapping[str, Any]) -> list[Message]:
    parts = parsed(a.get("gen_ai.system_instructions"))
    texts = [as_text(p.get("content")) for p in parts if is_dict(p)] if is_list(parts) else []
    return [("system", "\n".join(texts))] if texts else []


def _event_text(inside: Mapping[str, Any]) -> str:
    """Return the text of a message in an event, in any of the forms that instrumentations use."""
    for name in _CONTENTS:
        if (value := inside.get(name)) not in (None, ""):
            value = parsed(value)
            found = read_messages(value)
            if found:
                return found[-1][1]
            blocks = [as_text(one["text"]) for one in listed(value) if is_dict(one) and "text" in one]
            if blocks:
                return "\n".join(blocks)
            return as_text(value["content"]) if is_dict(value) and "content" in value else as_text(value)
    nested = [as_text(v) for k, v in inside.items() if k.endswith(".content")]
    return "\n".join(nested)


def _numbered(a: Mapping[str, Any], name: str) -> list[Message]:
    """Return flattened messages: `llm.input_messages.0.message.content`, `gen_ai.prompt.0.content`."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in a.items():
        if key.startswith(f"{name}."):
            number, _, rest = key[len(name) + 1 :].partition(".")
            if number.isascii() and number.isdigit() and len(number) < 10:
                found.setdefault(int(number), {})[rest.removeprefix("message.")] = value
    return [(as_text(one.get("role")) or "user", _flat_text(one)) for _, one in sorted(found.items())]


def _flat_text(one: Mapping[str, Any]) -> str:
    texts = [as_text(one["content"])] if one.get("content") else []
    parts = [k.removesuffix("text") for k in sorted(one) if k.startswith("contents.") and k.endswith(".text")]
    texts += [as_text(one[f"{k}text"]) for k in parts if not is_thought({"type": one.get(f"{k}type")})]
    names = [k for k in sorted(one) if k.startswith("tool_calls.") and k.endswith(".name")]
    texts += [f"calls {one[k]}({as_text(one.get(k[: -len('name')] + 'arguments'))})" for k in names]
    return "\n".join(texts)


def _read_outcome(a: Mapping[str, Any], turn: Turn, wanted: tuple[str, str]) -> None:
    """Read an evaluation result of the GenAI conventions from attributes, and attributes by name."""
    turn.read_named(a, wanted)
    value = a.get("gen_ai.evaluation.score.value")
    turn.add_score(a.get("gen_ai.evaluation.name"), value)
    if read_score(value) is not None and (told := a.get("gen_ai.evaluation.explanation")):
        turn.comments.append(as_text(told))


def log_records(resources: list[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the log records of OTLP/JSON."""
    for resource in resources:
        for scope in listed(resource.get("scopeLogs")) if is_dict(resource) else ():
            for record in listed(scope.get("logRecords")) if is_dict(scope) else ():
                if is_dict(record):
                    yield record


def any_value(value: Any) -> Any:
    """Return the plain value of an OTLP AnyValue, read like an attribute."""
    return read_spans({"attributes": [{"key": "gen_ai.input.messages", "value": value}]}, Path(), "")[0].attributes.get(
        "gen_ai.input.messages"
    )


def unflattened(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a record of Phoenix's table, with columns `attributes.llm.input_messages`, `context.trace_id`."""
    if not any(key.startswith("attributes.") for key in record):
        return record
    made = {key: value for key, value in record.items() if not key.startswith(("attributes.", "context."))}
    for part in ("attributes", "context"):
        inside = {k[len(part) + 1 :]: v for k, v in record.items() if k.startswith(f"{part}.") and v is not None}
        made[part] = inside
    if record.get("span_kind"):
        made["attributes"].setdefault("openinference.span.kind", record["span_kind"])
    return made


def read_annotation(note: Mapping[str, Any], turn: Turn) -> None:
    """Read an annotation of Phoenix: name, annotator_kind, result with label, score and explanation. Only a human's
    explanation is a comment."""
    if not is_dict(result := note.get("result")):
        return
    turn.add_score(note.get("name"), result.get("score"))
    if result.get("explanation") and str(note.get("annotator_kind", "HUMAN")).upper() == "HUMAN":
        turn.comments.append(as_text(result["explanation"]))

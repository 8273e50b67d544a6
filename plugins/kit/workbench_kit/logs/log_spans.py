"""Logs from spans: the GenAI conventions of OpenTelemetry, and OpenInference.

Spans come as OTLP/JSON (`resourceSpans`, also one such object a line, as a collector's file exporter writes), or as a
list of spans in the form of the Python SDK and of Phoenix: `name`, `context`, `parent_id`, `attributes`.

Attributes read, by the registries as of 2026: `gen_ai.operation.name`, `gen_ai.agent.name`, `gen_ai.input.messages`,
`gen_ai.output.messages`, `gen_ai.tool.name`, `gen_ai.tool.call.arguments`, `gen_ai.tool.call.result`, `error.type`
(https://opentelemetry.io/docs/specs/semconv/gen-ai/); `openinference.span.kind`, `agent.name`, `tool.name`,
`input.value`, `output.value`, `llm.input_messages`, `llm.output_messages`
(https://arize-ai.github.io/openinference/spec/semantic_conventions.html).

Calls of models and tools are steps. A span around them (an agent, a workflow, a chain) names their agent. A span with
none of them inside is a step itself.

One file: two conventions, read by one table of attributes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench_kit.logs.agent_log import Log, LogStep

Attributes = Mapping[str, Any]

#: Attributes that stay whole; their values are JSON, or its text.
_WHOLE = frozenset(
    {
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
    }
)


@dataclass(frozen=True, slots=True)
class LogSpan:
    """A span of either form. attributes: flat. start: orders the spans of a trace. events: names and attributes."""

    trace: str
    id: str
    parent: str
    name: str
    start: tuple[int, str]
    attributes: Attributes
    error: str | None
    events: tuple[tuple[str, Attributes], ...] = ()


@dataclass(frozen=True, slots=True)
class Convention:
    """Rules for reading spans.

    kind: the attribute with a span's kind; the kinds of steps, and of the spans around them. agent: attributes that
    name the acting agent.
    """

    kind: str
    models: frozenset[str]
    tools: frozenset[str]
    around: frozenset[str]
    agent: tuple[str, ...]
    tool: str

    def of(self, span: LogSpan) -> str:
        """Return the kind of a span; "" for spans of anything else."""
        return str(span.attributes.get(self.kind) or "")


CONVENTIONS = {
    "otel": Convention(
        "gen_ai.operation.name",
        frozenset({"chat", "generate_content", "text_completion"}),
        frozenset({"execute_tool", "retrieval"}),
        frozenset({"invoke_agent", "invoke_workflow", "create_agent", "plan"}),
        ("gen_ai.agent.name", "gen_ai.agent.id"),
        "gen_ai.tool.name",
    ),
    "openinference": Convention(
        "openinference.span.kind",
        frozenset({"LLM"}),
        frozenset({"TOOL", "RETRIEVER", "RERANKER", "GUARDRAIL"}),
        frozenset({"AGENT", "CHAIN"}),
        ("agent.name", "graph.node.id"),
        "tool.name",
    ),
}


# The forms of spans


def find_convention(value: Any) -> str | None:
    """Return the convention of the spans in a value; None if there are none. A span with both kinds of attributes is
    read as OpenInference, whose texts are always attributes."""
    try:
        names = {name for span in read_spans(value, Path(), "") for name in span.attributes}
    except SpecError:
        return None
    return next((form for form in ("openinference", "otel") if CONVENTIONS[form].kind in names), None)


def read_spans(value: Any, path: Path, place: str) -> list[LogSpan]:
    """Return the spans of a JSON value. Raise SpecError if it holds none."""
    if isinstance(value, Mapping) and isinstance(value.get("resourceSpans"), list):
        found = list(_otlp_entries(value["resourceSpans"]))
    elif isinstance(value, Mapping) and isinstance(value.get("spans"), list):
        found = value["spans"]
    else:
        found = value if isinstance(value, list) else [value]
    spans = []
    for number, entry in enumerate(found):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("attributes"), list | Mapping):
            raise SpecError(
                f"{path}{f', {place}' if place else ''}: span {number} has no attributes",
                hint="A span is an object with 'name', 'attributes' and its ids, as OTLP/JSON or an SDK writes it.",
            )
        try:
            spans.append(_span(entry))
        except RecursionError:
            raise SpecError(f"{path}: span {number} is nested too deeply", hint="It is not a span of an SDK.") from None
    return spans


def _otlp_entries(resources: Sequence[Any]) -> Iterator[Any]:
    for resource in resources:
        scopes = resource.get("scopeSpans") if isinstance(resource, Mapping) else None
        for scope in scopes if isinstance(scopes, list) else ():
            spans = scope.get("spans") if isinstance(scope, Mapping) else None
            yield from spans if isinstance(spans, list) else ()


def _span(entry: Mapping[str, Any]) -> LogSpan:
    context = entry.get("context") if isinstance(entry.get("context"), Mapping) else entry
    assert context is not None

    def text(*names: str) -> str:
        return next((str(part[name]) for part in (context, entry) for name in names if part.get(name)), "")

    flat = _attributes(entry)
    told = [e for e in _listed(entry.get("events")) if isinstance(e, Mapping)]
    events = tuple((str(event.get("name") or ""), _attributes(event)) for event in told)
    for _, found in events:  # content may be recorded in an event of the span
        flat.update({k: v for k, v in found.items() if k in (*_WHOLE, "exception.message") and k not in flat})
    started = text("startTimeUnixNano", "start_time_unix_nano", "start_time")
    return LogSpan(
        text("traceId", "trace_id"),
        text("spanId", "span_id"),
        text("parentSpanId", "parent_span_id", "parent_id"),
        str(entry.get("name") or ""),
        (number, "") if (number := _whole(started)) is not None else (0, started),
        flat,
        _error(entry, flat),
        events,
    )


def _attributes(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span or event, by flat names."""
    attributes = entry.get("attributes")
    if isinstance(attributes, list):
        attributes = {str(a.get("key")): _any_value(a.get("value")) for a in attributes if isinstance(a, Mapping)}
    return dict(_flat(attributes)) if attributes else {}


def _any_value(value: Any) -> Any:
    """Return the plain value of an OTLP AnyValue."""
    if not isinstance(value, Mapping):
        return value
    if isinstance(values := value.get("arrayValue"), Mapping):
        return [_any_value(v) for v in _listed(values.get("values"))]
    if isinstance(values := value.get("kvlistValue"), Mapping):
        pairs = [v for v in _listed(values.get("values")) if isinstance(v, Mapping)]
        return {str(v.get("key")): _any_value(v.get("value")) for v in pairs}
    if "intValue" in value:
        number = _whole(str(value["intValue"]))
        return value["intValue"] if number is None else number
    return next((value[name] for name in ("stringValue", "boolValue", "doubleValue") if name in value), None)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(text: str) -> int | None:
    """Parse an integer text of OTLP, or return None."""
    return int(text) if re.fullmatch("-?[0-9]{1,40}", text) else None


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield attributes by dotted names."""
    if prefix in _WHOLE:
        yield prefix, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{prefix}.{number}")
    else:
        yield prefix, value


def _error(entry: Mapping[str, Any], attributes: Attributes) -> str | None:
    status = entry.get("status")
    status = (
        status
        if isinstance(status, Mapping)
        else {"code": entry.get("status_code"), "message": entry.get("status_message")}
    )
    code = str(status.get("code") or status.get("status_code") or "").upper()
    said = str(status.get("message") or status.get("description") or "")
    if code in ("2", "ERROR", "STATUS_CODE_ERROR"):
        return said or str(attributes.get("exception.message") or attributes.get("error.type") or "the span failed")
    return str(attributes["error.type"]) if attributes.get("error.type") else None


# Traces as logs


def read_traces(spans: Sequence[LogSpan], form: str, path: Path, name: str) -> list[Log]:
    """Return a log for each trace with a step. Raise SpecError if there is none."""
    convention, traces = CONVENTIONS[form], dict[str, list[LogSpan]]()
    for span in spans:
        traces.setdefault(span.trace, []).append(span)
    logs = []
    for trace, found in traces.items():
        steps = _steps(found, convention)
        if steps:
            id_ = name if len(traces) == 1 else f"{name}#{trace[:32]}"
            logs.append(Log(id_, tuple(steps), _question(found, form), outcome=""))
    if not logs:
        seen = sorted({str(span.attributes.get(convention.kind)) for span in spans} - {"None"})
        what = f"its spans are {', '.join(seen)[:200]}" if seen else f"no span has {convention.kind}"
        raise SpecError(
            f"{path} contains no step of the format {form}: {what}, and none of them has a text",
            hint="Let the instrumentation record the content of messages and tool calls (it is off by default), or "
            "name another --format.",
        )
    return logs


def _steps(spans: Sequence[LogSpan], convention: Convention) -> list[LogStep]:
    by_id = {span.id: span for span in spans if span.id}
    acting = convention.models | convention.tools
    with_steps: set[str] = set()  # the spans around a step
    for span in spans:
        if convention.of(span) in acting:
            with_steps |= {above.id for above in _above(span, by_id)}
    steps = []
    for span in sorted(spans, key=lambda s: s.start):
        kind = convention.of(span)
        if kind not in acting and not (kind in convention.around and span.id not in with_steps):
            continue
        content = _content(span, kind in convention.tools)
        if not content and not span.error:
            continue
        role = f"tool {span.attributes.get(convention.tool) or span.name}".strip() if kind in convention.tools else ""
        steps.append(LogStep(_agent(span, by_id, convention), content, role, span.error))
    return steps


def _above(span: LogSpan, by_id: Mapping[str, LogSpan]) -> Iterator[LogSpan]:
    seen = {span.id}
    while (above := by_id.get(span.parent)) is not None and above.id not in seen:
        seen.add(above.id)
        yield above
        span = above


def _agent(span: LogSpan, by_id: Mapping[str, LogSpan], convention: Convention) -> str:
    """Return the acting agent: the nearest agent name from the span upwards, else the name of the nearest enclosing
    span."""
    line = [span, *_above(span, by_id)]
    for one in line:
        named = next((str(one.attributes[a]) for a in convention.agent if one.attributes.get(a)), None)
        if named:
            return named
    around = [one.name for one in line if convention.of(one) in convention.around and one.name]
    return around[0] if around else span.name or "agent"


def _content(span: LogSpan, tool: bool) -> str:
    """Return the text of a step: the model's answer, or the arguments and the result of a tool."""
    a = span.attributes
    if tool:
        asked = a.get("gen_ai.tool.call.arguments", a.get("input.value", a.get("tool.parameters")))
        got = a.get("gen_ai.tool.call.result", a.get("output.value"))
        if got is None:
            got = "\n".join(_numbered(a, r"retrieval\.documents\.([0-9]{1,9})\.document\.content")) or None
        parts = [f"called with {_as_text(asked)}"] if asked is not None else []
        return "\n".join([*parts, *([f"result: {_as_text(got)}"] if got is not None else [])])
    said = _message_texts(a.get("gen_ai.output.messages")) or _flat_messages(a, "llm.output_messages")
    return "\n".join(said) or (_as_text(a["output.value"]) if a.get("output.value") else "")


def _question(spans: Sequence[LogSpan], form: str) -> str:
    """Return the first text of a user, or the input of the first span."""
    for span in sorted(spans, key=lambda s: s.start):
        a = span.attributes
        texts = _message_texts(a.get("gen_ai.input.messages"), "user") or _flat_messages(
            a, "llm.input_messages", "user"
        )
        if texts:
            return texts[0]
        if form == "openinference" and a.get("input.value"):
            return _as_text(a["input.value"])
    return ""


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _message_texts(value: Any, role: str | None = None) -> list[str]:
    """Return the texts and tool calls of GenAI messages, as JSON or its text. role: only messages of this role."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [value] if role is None and value else []
    texts = []
    for message in value if isinstance(value, list) else ():
        if not isinstance(message, Mapping) or (role is not None and message.get("role") != role):
            continue
        parts = message.get("parts", message.get("content"))
        parts = [{"content": parts}] if isinstance(parts, str) else parts
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping) and part.get("type") == "tool_call":
                texts.append(f"calls {part.get('name')}({_as_text(part.get('arguments'))})")
            elif isinstance(part, Mapping) and isinstance(part.get("content"), str) and part["content"]:
                texts.append(part["content"])
    return texts


def _flat_messages(attributes: Attributes, name: str, role: str | None = None) -> list[str]:
    """Return the texts and tool calls of OpenInference messages, `llm.output_messages.0.message.content` and so on."""
    inside = re.escape(name) + r"\.([0-9]{1,9})\.message\."
    numbers = sorted({int(found[1]) for key in attributes if (found := re.match(inside, key))})
    texts = []
    for number in numbers:
        begin = f"{name}.{number}.message."
        if role is not None and attributes.get(f"{begin}role") != role:
            continue
        if attributes.get(f"{begin}content"):
            texts.append(_as_text(attributes[f"{begin}content"]))
        texts += _numbered(attributes, re.escape(begin) + r"contents\.([0-9]{1,9})\.message_content\.text")
        calls = re.escape(begin) + r"tool_calls\.([0-9]{1,9})\.tool_call\.function\."
        given = dict(_by_number(attributes, calls + "arguments"))
        texts += [f"calls {tool}({given.get(n, '')})" for n, tool in _by_number(attributes, calls + "name")]
    return texts


def _numbered(attributes: Attributes, pattern: str) -> list[str]:
    """Return the values whose names match, in the order of the number in them."""
    return [text for _, text in _by_number(attributes, pattern)]


def _by_number(attributes: Attributes, pattern: str) -> list[tuple[int, str]]:
    """Return the matching values with their numbers, which the pattern's group captures."""
    matches = [(re.fullmatch(pattern, name), value) for name, value in attributes.items()]
    return sorted((int(match[1]), _as_text(value)) for match, value in matches if match)

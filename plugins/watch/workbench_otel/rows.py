"""The spans of one row: the workflow, its nodes, and their calls of models and tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Link, Span as OpenSpan, SpanKind, Status, StatusCode

from workbench.ledger import CallInfo
from workbench.study import RowRun
from workbench.workflow import CallRecord, EffectRecord, Span
from workbench_otel.attributes import call_attributes, node_attributes, tool_attributes, tool_name
from workbench_otel.content import Capture, Content
from workbench_otel.export import Export, nanoseconds


class RowSpans:
    """Makes the spans of one row.

    run: the name of the run. paid: the row's calls that this process paid, by key; each is removed when its span is
    made, so that a second answer from the journal is not counted.
    """

    def __init__(self, export: Export, capture: Capture, content: Content, run: str, paid: dict[str, CallInfo]):
        self.export, self.capture, self.content, self.run, self.paid = export, capture, content, run, paid

    def add(self, row: RowRun, attributes: Mapping[str, Any], root: OpenSpan) -> OpenSpan:
        """Make the span of the row, ended, with its inner spans. root: the span of the run, to which it is linked."""
        calls = row.trace.calls
        replayed = bool(calls) and not any(call.key in self.paid for call in calls)
        told = {**attributes, "workbench.replayed": replayed}
        if row.result.score is not None:
            told["workbench.score"] = float(row.result.score)
        if self.capture.spans:
            told |= self.content.value("input", dict(row.result.example.fields))
            told |= self.content.value("output", dict(row.result.prediction))
        name, links = str(attributes["gen_ai.workflow.name"]), [Link(root.get_span_context())]
        top = self._open(f"invoke_workflow {name}", told, None, row.began, links=links)
        nodes = dict[tuple[int, ...], OpenSpan]()
        for span in sorted(row.trace.spans, key=lambda span: len(span.order)):
            parent = next(
                (nodes[span.order[:n]] for n in range(len(span.order) - 1, 0, -1) if span.order[:n] in nodes), top
            )
            nodes[span.order] = self._node(span, parent)
        _fail(top, row.result.failure)
        top.end(nanoseconds(max(row.ended, row.began)))
        return top

    def _node(self, span: Span, parent: OpenSpan) -> OpenSpan:
        told = node_attributes(span)
        if self.capture.spans:
            told |= {
                **self.content.value("input", dict(span.inputs)),
                **self.content.value("output", dict(span.outputs)),
            }
        name = f"invoke_agent {span.agent}" if span.agent else span.node
        opened = self._open(name, told, parent, span.began)
        for call in span.calls:
            self._call(call, opened)
        for effect in span.effects:
            if (tool := tool_name(effect)) is not None:
                self._tool(effect, tool, opened)
        _fail(opened, span.error.partition(":")[0] if span.error else None)
        opened.end(nanoseconds(span.began + span.seconds + span.queued))
        return opened

    def _call(self, call: CallRecord, parent: OpenSpan) -> None:
        paid = self.paid.pop(call.key, None)
        told = call_attributes(call, paid)
        embeds, inside = told["gen_ai.operation.name"] == "embeddings", {}
        if not embeds and (self.capture.spans or self.capture.events):
            inside = self.content.genai(call.messages, call.response)
            if call.tools:
                inside["gen_ai.tool.definitions"] = self.content.value("input", list(call.tools))["input.value"]
        if self.capture.spans and not embeds:
            told |= {**inside, **self.content.openinference(call.messages, call.response)}
        name = f"{told['gen_ai.operation.name']} {told['gen_ai.request.model']}"
        began = call.began + (0.0 if paid is None else call.queued)
        span = self._open(name, told, parent, began, SpanKind.CLIENT)
        ended = began if paid is None else began + call.seconds
        if self.capture.events and inside:
            self.export.emit("gen_ai.client.inference.operation.details", span, {**told, **inside}, ended)
        span.end(nanoseconds(ended))

    def _tool(self, effect: EffectRecord, name: str, parent: OpenSpan) -> None:
        told = tool_attributes(effect, name)
        if self.capture.spans:
            arguments, redacted = effect.content[-1], self.content.value
            told["gen_ai.tool.call.arguments"] = redacted("input", arguments)["input.value"]
            told["gen_ai.tool.call.result"] = redacted("output", effect.result)["output.value"]
            told |= {**redacted("input", arguments), **redacted("output", effect.result)}
        span = self._open(f"execute_tool {name}", told, parent, effect.began)
        failed = isinstance(effect.result, Mapping) and "error" in effect.result
        _fail(span, effect.error or ("tool" if failed else None))
        span.end(nanoseconds(effect.began + effect.seconds))

    def _open(
        self,
        name: str,
        attributes: Mapping[str, Any],
        parent: OpenSpan | None,
        began: float,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Any = (),
    ) -> OpenSpan:
        return self.export.open(
            self.content.redact(name),
            self.content.redact({**attributes, "workbench.run": self.run}),
            parent,
            began,
            kind,
            links,
        )


def _fail(span: OpenSpan, kind: str | None) -> None:
    """Mark a span as failed. The message of an error may quote a prompt or a key, so only its kind is sent."""
    if kind is not None:
        span.set_attribute("error.type", str(kind))
        span.set_status(Status(StatusCode.ERROR))

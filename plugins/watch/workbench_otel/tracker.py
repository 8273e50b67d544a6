"""A run as spans: the run with its proposals, gates and accepted patches, and each row as a trace of its own.

A row's trace is linked to the run: a single trace of 50,000 calls is more than a backend can show.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from workbench.ledger import CallInfo
from workbench.run import RunInfo, Tracker
from workbench.study import Evaluation, RowRun
from workbench.workflow import Workflow
from workbench_otel.attributes import KIND, settled_attributes
from workbench_otel.content import Capture, Content, as_json
from workbench_otel.export import Export, is_disabled, nanoseconds
from workbench_otel.redaction import Redaction
from workbench_otel.rows import RowSpans

#: Maximum calls kept for unfinished rows, and for a proposal; older ones are sent without a row.
_MAX_CALLS, _MAX_LINKS = 10_000, 100


class OTel(Tracker):
    """Sends a run to an OpenTelemetry collector."""

    needs = ("opentelemetry.exporter.otlp.proto.http", "watch[otel]")

    def __init__(self, run: RunInfo):
        super().__init__(run)
        self.capture, self.redact = Capture.from_environment(), Redaction()
        self.content = Content(self.redact)
        self.export = None if is_disabled() else Export()
        self._root: Span = trace.INVALID_SPAN
        self._calls: dict[str, CallInfo] = {}  # paid in unfinished rows
        self._proposer: list[tuple[CallInfo, Span]] = []  # calls since the last proposal
        self._proposals: dict[str, Span] = {}
        self._first_rows: dict[str, float] = {}  # when the first row of a candidate began

    # Events

    def run_started(self, resumed: bool) -> None:
        if self.export is None:
            return
        settings = {f"workbench.{k}": v for k, v in self.run.settings.items() if _is_plain(k, v)}
        self._root = self._start(
            f"{self.run.kind} {self.run.name}", {**settings, "workbench.resumed": resumed, KIND: "CHAIN"}
        )
        self._event("workbench.run.started", self._root, {"workbench.resumed": resumed})
        self.export.probe()

    def call_settled(self, call: CallInfo) -> None:
        if self.export is None:
            return
        if call.row == 0:
            self._settled(call, self._root)
        elif not call.cached:
            if len(self._calls) >= _MAX_CALLS:
                self._settled(self._calls.pop(next(iter(self._calls))), self._root)
            self._calls[call.key] = call

    def row_finished(self, row: RowRun) -> None:
        if self.export is None:
            return
        self.export.make_room()
        if row.split == "val":
            self._first_rows.setdefault(row.workflow.hash, row.began)
        mine = {key: call for key, call in self._calls.items() if call.row == row.number}
        for key in mine:
            del self._calls[key]
        spans = RowSpans(self.export, self.capture, self.content, self.run.run, mine)
        top = spans.add(row, self._row_attributes(row), self._root)
        for call in mine.values():  # in no trace: of a judge, or without an answer
            self._settled(call, top)
        if row.scored:
            self._score(row, top)

    def candidate_proposed(self, candidate: Workflow, optimizer: str) -> None:
        if self.export is None or candidate.patch is None:
            return
        calls, self._proposer = self._proposer, []
        began = min((call.at - call.seconds for call, _ in calls), default=time.time())
        links = [Link(span.get_span_context()) for _, span in calls]
        attributes = {**self._patch(candidate), "workbench.optimizer": optimizer}
        span = self._start("propose", attributes, self._root, began, links)
        span.end()
        self._proposals[candidate.hash] = span

    def candidate_evaluated(self, evaluation: Evaluation, accepted: bool, calls: int) -> None:
        if self.export is None:
            return
        candidate = evaluation.workflow
        attributes = {
            "workbench.candidate": candidate.hash,
            "workbench.split": evaluation.split,
            "workbench.rows": len(evaluation.results),
            "workbench.complete": evaluation.complete,
            "workbench.score": evaluation.score,
            "workbench.accepted": accepted,
            "workbench.calls": calls,
            KIND: "EVALUATOR",
        }
        proposal = self._proposals.pop(candidate.hash, None)
        links = [] if proposal is None else [Link(proposal.get_span_context())]
        gate = self._start("gate", attributes, self._root, self._first_rows.pop(candidate.hash, None), links)
        if accepted and candidate.patch is not None:
            self._start("accept", self._patch(candidate), gate).end()
        gate.end()

    def run_finished(self, report: Any) -> None:
        if self.export is None:
            return
        for call in self._calls.values():  # of rows that were cut short
            self._settled(call, self._root)
        found = report.as_dict()
        gain = found.get("gain")
        if isinstance(gain, Mapping):
            numbers = {f"workbench.gain.{k}": v for k, v in gain.items() if isinstance(v, bool | int | float | str)}
            self._start("proof", {**numbers, KIND: "EVALUATOR"}, self._root).end()
        self._root.set_attribute("workbench.status", report.status)
        for name in ("calls", "usd", "prompt_tokens", "completion_tokens"):
            self._root.set_attribute(f"workbench.spent.{name}", found["spent"][name])
        if report.status == "failed":
            self._root.set_status(Status(StatusCode.ERROR))
        self._root.end()
        self.export.finish()

    def lost(self) -> str:
        return "" if self.export is None else self.export.lost()

    # Spans

    def _start(
        self,
        name: str,
        attributes: Mapping[str, Any],
        parent: Span | None = None,
        began: float | None = None,
        links: Sequence[Link] = (),
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        assert self.export is not None
        told = self.redact({**attributes, "workbench.run": self.run.run})
        return self.export.open(self.redact(name), told, parent, began or time.time(), kind, links)

    def _settled(self, call: CallInfo, parent: Span) -> None:
        """Send a call that is in no trace. Those of the proposer are linked to the next proposal."""
        attributes = settled_attributes(call)
        name, began = f"chat {attributes['gen_ai.request.model']}", call.at - (0 if call.cached else call.seconds)
        span = self._start(name, attributes, parent, began, kind=SpanKind.CLIENT)
        if call.outcome not in ("ok", "stop", "length", "empty", "tool_calls"):
            span.set_attribute("error.type", str(call.outcome))
            span.set_status(Status(StatusCode.ERROR))
        span.end(nanoseconds(call.at))
        if call.row == 0 and call.role == "proposer":
            self._proposer = [*self._proposer[1 - _MAX_LINKS :], (call, span)]

    def _row_attributes(self, row: RowRun) -> dict[str, Any]:
        return {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": self.run.name,
            "gen_ai.agent.name": self.run.name,
            "workbench.run": self.run.run,
            "workbench.candidate": row.workflow.hash,
            "workbench.split": row.split,
            "workbench.row": row.result.example.id,
            "workbench.replica": row.replica,
            "session.id": self.run.run,
            KIND: "CHAIN",
        }

    def _patch(self, candidate: Workflow) -> dict[str, Any]:
        """Return the parameters that a patch changes. Its text is content."""
        patch = candidate.patch
        assert patch is not None
        found: dict[str, Any] = {"workbench.candidate": candidate.hash, "workbench.parent": candidate.parent or ""}
        found[KIND] = "CHAIN"
        found["workbench.changed"] = sorted([*patch.set, *patch.unset])
        if self.capture.spans:
            found |= {"workbench.patch": as_json(self.redact(patch.as_dict())), "workbench.note": patch.note}
        return found

    # Events

    def _score(self, row: RowRun, span: Span) -> None:
        """Send `gen_ai.evaluation.result`, under the span of the row."""
        result = row.result
        told: dict[str, Any] = {"gen_ai.evaluation.name": str(self.run.settings.get("metric") or "score")}
        if result.score is not None:
            told["gen_ai.evaluation.score.value"] = float(result.score)
        if result.failure is not None:
            told["error.type"] = str(result.failure)
        if result.feedback and (self.capture.spans or self.capture.events):
            told["gen_ai.evaluation.explanation"] = self.redact(result.feedback)
        self._event("gen_ai.evaluation.result", span, told, row.ended)

    def _event(self, name: str, span: Span, attributes: Mapping[str, Any], at: float | None = None) -> None:
        assert self.export is not None
        self.export.emit(name, span, {**attributes, "workbench.run": self.run.run}, at or time.time())


def _is_plain(name: str, value: Any) -> bool:
    """Return True if a setting is not content: a text among an optimizer's settings may be a prompt."""
    named = not name.startswith("optimize.") or name.count(".") == 1
    return isinstance(value, bool | int | float) or (named and isinstance(value, str))

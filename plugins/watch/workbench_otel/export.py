"""Sends spans and events by OTLP over HTTP, in batches from a bounded queue, and counts those that did not arrive.

All settings are standard variables: OTEL_EXPORTER_OTLP_ENDPOINT and similar ones, OTEL_BSP_*, OTEL_RESOURCE_ATTRIBUTES,
OTEL_TRACES_SAMPLER (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, Span, SpanKind, set_span_in_context

from workbench import __version__

#: Seconds to wait at the end of a run for a collector that accepted data before, and for one that never did.
FLUSH, FIRST_FLUSH = 5.0, 1.0
#: Seconds after which a request to the collector counts as stuck.
_STUCK = 2.0

# The SDK's log messages about an unreachable collector would overwrite the progress on the terminal. It is reported
# once, at the end.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


class _Counted:
    """Counts items given to an exporter and those that arrived, and detects whether it is stuck."""

    def __init__(self) -> None:
        self.offered = self.sent = 0
        self.failed = False
        self._asked: float | None = None

    def export(self, exporter: Any, batch: Sequence[Any], success: Any) -> Any:
        self._asked = time.monotonic()
        try:
            result = exporter.export(batch)
        finally:
            self._asked = None
        if result is success:
            self.sent += len(batch)
        self.failed = result is not success
        return result

    @property
    def stuck(self) -> bool:
        asked = self._asked
        return asked is not None and time.monotonic() - asked > _STUCK


class _Spans(SpanExporter):
    def __init__(self, counted: _Counted):
        self.counted, self._exporter = counted, OTLPSpanExporter()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self.counted.export(self._exporter, spans, SpanExportResult.SUCCESS)

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Events(LogRecordExporter):
    def __init__(self, counted: _Counted):
        self.counted, self._exporter = counted, OTLPLogExporter()

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        return self.counted.export(self._exporter, batch, LogRecordExportResult.SUCCESS)

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        return True

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _SpanQueue(BatchSpanProcessor):
    """The SDK's queue. When it holds OTEL_BSP_MAX_QUEUE_SIZE spans (2,048), it drops the oldest."""

    def __init__(self, counted: _Counted):
        super().__init__(_Spans(counted))
        self.counted = counted

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self.counted.offered += 1
        super().on_end(span)


class _EventQueue(BatchLogRecordProcessor):
    def __init__(self, counted: _Counted):
        super().__init__(_Events(counted))
        self.counted = counted

    def on_emit(self, log_record: Any) -> None:
        self.counted.offered += 1
        super().on_emit(log_record)


class Export:
    """A tracer and a logger whose spans and events go to the collector that the environment names.

    Raises ValueError for an exporter or a protocol that is not OTLP over HTTP.
    """

    def __init__(self) -> None:
        _check_protocol()
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME") or "workbench"})
        self.spans, self.events = _Counted(), _Counted()
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
        if _is_wanted("OTEL_TRACES_EXPORTER"):
            self._tracers.add_span_processor(_SpanQueue(self.spans))
        if _is_wanted("OTEL_LOGS_EXPORTER"):
            self._loggers.add_log_record_processor(_EventQueue(self.events))
        self.tracer = self._tracers.get_tracer("workbench", __version__)
        self.logger = self._loggers.get_logger("workbench", __version__)
        self._most = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or 2048)

    def open(
        self,
        name: str,
        attributes: Mapping[str, Any],
        parent: Span | None,
        began: float,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
    ) -> Span:
        """Open a span that began at a time, in seconds since 1970. parent: None for one that begins a trace."""
        context = Context() if parent is None else set_span_in_context(parent)
        start = nanoseconds(began)
        return self.tracer.start_span(name, context, kind, dict(attributes), links, start_time=start)

    def emit(self, name: str, span: Span, attributes: Mapping[str, Any], at: float) -> None:
        """Send an event under a span. at: in seconds since 1970."""
        self.logger.emit(
            LogRecord(
                timestamp=nanoseconds(at),
                context=set_span_in_context(span),
                severity_number=SeverityNumber.INFO,
                event_name=name,
                attributes=dict(attributes),
            )
        )

    def probe(self) -> None:
        """Send the queued spans in a thread, to know before the end whether the collector answers."""
        threading.Thread(target=self._loggers.force_flush, name="otel probe", daemon=True).start()

    def make_room(self) -> None:
        """Wait while the queue is more than half full and the collector works, so that nothing is dropped."""
        until = time.monotonic() + 1.0
        while self.spans.offered - self.spans.sent > self._most / 2 and time.monotonic() < until:
            if self.spans.failed or self.spans.stuck:
                return
            time.sleep(0.01)

    def finish(self) -> None:
        """Send the rest, for at most FLUSH seconds; the remainder is lost."""
        known = self.spans.sent + self.events.sent > 0
        flush = threading.Thread(target=self._close, name="otel flush", daemon=True)
        flush.start()
        flush.join(FLUSH if known else FIRST_FLUSH)

    def _close(self) -> None:
        self._tracers.force_flush()
        self._loggers.force_flush()
        self._tracers.shutdown()
        self._loggers.shutdown()

    def lost(self) -> str:
        """Describe lost events; empty if all arrived."""
        told = [
            f"{counted.offered - counted.sent} of {counted.offered} {what}"
            for what, counted in (("spans", self.spans), ("events", self.events))
            if counted.sent < counted.offered
        ]
        return f"{' and '.join(told)} did not reach the collector (OTEL_EXPORTER_OTLP_ENDPOINT)" if told else ""


def nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def is_disabled() -> bool:
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _is_wanted(variable: str) -> bool:
    value = os.environ.get(variable) or "otlp"
    if value not in ("otlp", "none"):
        raise ValueError(f"{variable}={value} is not known here; write otlp or none")
    return value == "otlp"


def _check_protocol() -> None:
    for name in (
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
    ):
        if (value := os.environ.get(name) or "http/protobuf") != "http/protobuf":
            raise ValueError(f"{name}={value} is not known here; write http/protobuf, and an endpoint that takes it")

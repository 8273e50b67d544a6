"""A receiver of OTLP over HTTP on loopback, which decodes what arrives as a collector does."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass
class Received:
    """What arrived. spans: attributes flat, ids as hex; raw: the bodies."""

    url: str = ""
    spans: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    decoded: list[Any] = field(default_factory=list)
    answer: str = "ok"  # `ok`, `hang`, or a status such as 503
    released: threading.Event = field(default_factory=threading.Event)

    def named(self, start: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"].startswith(start)]

    def add(self, path: str, body: bytes) -> bytes:
        self.raw.append(body)
        if path == "/v1/traces":
            asked = ExportTraceServiceRequest.FromString(body)
            self.decoded.append(MessageToDict(asked))
            for part in asked.resource_spans:
                self.resources.append(_flat(part.resource.attributes))
                self.spans += [_span(span) for scope in part.scope_spans for span in scope.spans]
            return ExportTraceServiceResponse().SerializeToString()
        assert path == "/v1/logs", path
        for part in ExportLogsServiceRequest.FromString(body).resource_logs:
            for record in (record for scope in part.scope_logs for record in scope.log_records):
                self.events.append(
                    {"name": record.event_name, "span": record.span_id.hex(), **_flat(record.attributes)}
                )
        return ExportLogsServiceResponse().SerializeToString()


def _flat(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind) if kind else None
    return [_value(one) for one in found.values] if kind == "array_value" else found


def _span(span: Any) -> dict[str, Any]:
    return {
        "name": span.name,
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "trace": span.trace_id.hex(),
        "began": span.start_time_unix_nano,
        "ended": span.end_time_unix_nano,
        "failed": span.status.code == 2,
        "links": [link.span_id.hex() for link in span.links],
        **_flat(span.attributes),
    }


@contextmanager
def otlp_receiver() -> Iterator[Received]:
    """Run one until the block ends."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else a body waits 40 ms for its head

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if received.answer == "hang":
                received.released.wait(60)
                return
            if received.answer != "ok":
                self.send_response(int(received.answer))
                self.end_headers()
                return
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer = received.add(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True)
    thread.start()
    received.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield received
    finally:
        received.released.set()
        server.shutdown()
        server.server_close()

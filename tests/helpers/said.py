"""A server on loopback that answers each request as a function says, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.helpers.upstream import chat_answer

Json = dict[str, Any]


@dataclass
class Asked:
    path: str
    headers: dict[str, str]  # names in lower case
    body: Json


@dataclass
class Reply:
    """body: JSON, or bytes as they are."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass
class Saying:
    base: str
    asked: list[Asked]


def billed(text: str = "label: technical", /, tokens: int = 50, **usage: Any) -> Json:
    """An answer with these fields in its usage."""
    counts = {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
    return {**chat_answer(text), "usage": {**counts, **usage}}


def streamed(answer: Json) -> bytes:
    """A chat completion in two chunks, the second with its usage."""
    said = {k: v for k, v in answer["choices"][0]["message"].items() if v}
    first = {"choices": [{"index": 0, "delta": said, "finish_reason": "stop"}]}
    second = {**{k: v for k, v in answer.items() if k != "choices"}, "choices": []}
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in (first, second)) + b"data: [DONE]\n\n"


@contextmanager
def saying(reply: Callable[[Asked], Any]) -> Iterator[Saying]:
    """reply: gives JSON for status 200, or a Reply."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"] or 0))
            asked = Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(raw))
            server.asked.append(asked)
            found = reply(asked)
            said = found if isinstance(found, Reply) else Reply(found)
            data = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
            kind = "text/event-stream" if data.startswith(b"data:") else "application/json"
            self.send_response(said.status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server = Saying(f"http://127.0.0.1:{http.server_port}/v1", [])
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.005})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()

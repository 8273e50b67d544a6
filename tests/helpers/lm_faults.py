"""A small OpenAI-compatible chat server on loopback for tests: it echoes, or fails as configured.

    with ChatServer("429", retry_after="2") as server: ...  # server.base, server.requests, server.bodies

Kinds: ok, a status ("429", "500", ...), reset, drop, truncated, html, badutf8, list, nochoices, empty, null,
blank, refusal, length, filter, nousage, badusage, error200, gateway, tools, badtools, logprobs, parts,
surrogate, deep, huge, hugechunked, endless, bomb, endlessbomb, oddcoding, packed, deflated, stall, slowloris, redirect.
`sent` counts the bytes of endless bodies that left.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HUGE = 33 * 1024 * 1024


def answer(text: Any = "echo", **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **choice.pop("message", {})}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message, **choice}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }


def call(arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}


def scored(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}


#: Bodies sent with status 200: an object as JSON, bytes unchanged.
BODIES: dict[str, Any] = {
    "html": b"<html><body>Bad gateway</body></html>",
    "badutf8": b'{"choices": [{"message": {"content": "\xff\xfe"}}]}',
    "list": [1, 2],
    "nochoices": {"id": "x"},
    "empty": {**answer(), "choices": []},
    "null": answer(None),
    "grade": answer("It says so.\nscore: 7"),
    "blank": answer(" \n"),
    "refusal": answer(None, message={"refusal": "I can't help with that."}),
    "length": answer("cut sh", finish_reason="length"),
    "filter": answer("", finish_reason="content_filter"),
    "nousage": {k: v for k, v in answer("four words are here").items() if k != "usage"},
    "badusage": {**answer(), "usage": {"prompt_tokens": "many", "completion_tokens": -1}},
    "error200": {"error": {"message": "it broke"}},
    "gateway": {"error": {"message": "slow down", "code": 429}},
    "tools": answer(None, finish_reason="tool_calls", message={"tool_calls": [call('{"x": 1}')]}),
    "badtools": answer(None, finish_reason="tool_calls", message={"tool_calls": [call('{"x": ')]}),
    "logprobs": answer("ab", logprobs={"content": [scored("a", -0.5), scored("b", -1.5)]}),
    "parts": answer([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]),
    "surrogate": json.dumps(answer("bad \ud800 half")).encode(),
    "deep": b"[" * 200_000,
}


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else a body waits 40 ms for its head

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        chat = self.server.chat
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with chat.lock:
            chat.bodies.append(body)
            chat.headers.append(dict(self.headers))
            kind = chat.kind(body) if callable(chat.kind) else chat.kind
        if chat.latency:
            time.sleep(chat.latency)
        handle = getattr(self, f"fault_{kind}", None)
        if handle:
            handle(chat)
        elif kind.isdigit():
            headers = {"Retry-After": chat.retry_after} if chat.retry_after is not None else {}
            default = {"error": {"message": f"injected {kind}", "type": "injected", **chat.error}}
            self.reply(int(kind), default, headers)
        else:
            text = body["messages"][-1]["content"]
            self.reply(200, BODIES.get(kind) or answer(text))

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None, sent: int | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[:sent])

    def fault_drop(self, chat: ChatServer) -> None:
        self.close_connection = True

    def fault_truncated(self, chat: ChatServer) -> None:
        data = json.dumps(answer()).encode()
        self.reply(200, data[: len(data) // 2])

    def fault_reset(self, chat: ChatServer) -> None:
        self.reply(200, answer(), sent=40)
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.connection.close()
        self.close_connection = True

    def fault_redirect(self, chat: ChatServer) -> None:
        self.reply(307, b"", {"Location": chat.base + "/elsewhere"})

    def fault_huge(self, chat: ChatServer) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(HUGE))
        self.end_headers()
        self._flood()

    def fault_hugechunked(self, chat: ChatServer) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._flood(b"100000\r\n", b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def fault_endless(self, chat: ChatServer) -> None:
        self._send_for_ever(chat, lambda: b" " * (1 << 16))

    def fault_endlessbomb(self, chat: ChatServer) -> None:
        """A gzip stream without an end: each of its kilobytes unpacks to a megabyte."""
        packer = zlib.compressobj(9, wbits=31)
        self._send_for_ever(chat, lambda: packer.compress(b" " * (1 << 24)) + packer.flush(zlib.Z_SYNC_FLUSH), "gzip")

    def _send_for_ever(self, chat: ChatServer, block: Any, coding: str = "identity") -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Encoding", coding)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while not chat.stopping.is_set():
            data = block()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            chat.sent += len(data)

    def fault_bomb(self, chat: ChatServer) -> None:
        """A whole answer behind 100 MB of blanks, packed to 100 kB."""
        self._reply_packed(b" " * 100_000_000 + json.dumps(answer()).encode(), 31, "gzip")

    def fault_packed(self, chat: ChatServer) -> None:
        self._reply_packed(json.dumps(answer("packed")).encode(), 31, "gzip")

    def fault_deflated(self, chat: ChatServer) -> None:
        self._reply_packed(json.dumps(answer("packed")).encode(), -15, "deflate")

    def fault_stated(self, chat: ChatServer) -> None:
        """An answer whose header states what it cost, as LiteLLM's proxy does; the second one states nothing."""
        self.reply(200, answer(), {"X-LiteLLM-Response-Cost": "0.5"} if chat.requests == 1 else None)

    def fault_oddcoding(self, chat: ChatServer) -> None:
        self._reply_packed(json.dumps(answer()).encode(), 31, "gzip, gzip")

    def _reply_packed(self, data: bytes, window: int, coding: str) -> None:
        packer = zlib.compressobj(9, wbits=window)
        self.reply(200, packer.compress(data) + packer.flush(), {"Content-Encoding": coding})

    def _flood(self, before: bytes = b"", after: bytes = b"") -> None:
        block = before + b" " * (1 << 20) + after
        for _ in range(HUGE >> 20):
            self.wfile.write(block)

    def fault_stall(self, chat: ChatServer) -> None:
        chat.stopping.wait(60)
        self.close_connection = True

    def fault_slowloris(self, chat: ChatServer) -> None:
        self.reply(200, answer(), sent=0)
        for byte in json.dumps(answer()).encode():
            if chat.stopping.wait(0.2):
                break
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True
    chat: ChatServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # tests disconnect clients on purpose


class ChatServer:
    """The server as a context manager; `kind` may be changed between requests, or depend on a request's body."""

    def __init__(
        self,
        kind: str | Callable[[dict[str, Any]], str] = "ok",
        *,
        retry_after: str | None = None,
        latency: float = 0.0,
        **error: Any,
    ):
        self.kind, self.retry_after, self.latency, self.error = kind, retry_after, latency, error
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.sent = 0
        self.lock, self.stopping = threading.Lock(), threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.chat = self
        self.base = f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def requests(self) -> int:
        return len(self.bodies)

    def __enter__(self) -> ChatServer:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.005})
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

"""A server that answers the simulated task of `workbench_testing` over the OpenAI protocol, with faults on request.

Nothing here is a model: the answers follow the formula of `SimulatedLM`. It counts requests, which is the point.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workbench.lm import Request
from workbench_testing import SimulatedLM

FAULTS = (
    "429",
    "500",
    "503",
    "reset",
    "stall",
    "slowloris",
    "truncated",
    "html",
    "empty",
    "null",
    "refusal",
    "length",
    "nousage",
)


class SimulatedServer:
    """Use as a context manager; `base` is its address. faults: share of requests by kind, drawn from a seed."""

    def __init__(self, faults: Mapping[str, float] | None = None, latency: float = 0.0, seed: int = 0):
        self.faults, self.latency, self.random = dict(faults or {}), latency, random.Random(seed)
        self.lm, self.lock = SimulatedLM(), threading.Lock()
        self.requests, self.stalls, self.bodies = 0, 0, Counter[str]()
        self.http = _Server(("127.0.0.1", 0), _Handler)
        self.http.owner = self
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def __enter__(self) -> SimulatedServer:
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    def draw(self) -> str | None:
        share = self.random.random()
        for kind, part in self.faults.items():
            if share < part:
                return kind
            share -= part
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    owner: SimulatedServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else a body waits 40 ms for its head

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        owner = self.server.owner
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(raw)
        with owner.lock:
            owner.requests += 1
            owner.bodies[raw.decode()] += 1
            fault = owner.draw()
            owner.stalls += fault == "stall"
        time.sleep(owner.latency)
        if fault in ("429", "500", "503"):
            return self.send(int(fault), b'{"error": {"message": "simulated"}}', {"Retry-After": "0.05"})
        if fault == "stall":
            return time.sleep(30)
        if fault == "html":
            return self.send(200, b"<html>Bad gateway</html>")
        request = Request(tuple(body["messages"]), temperature=float(body.get("temperature") or 0))
        text = asyncio.run(owner.lm.complete(request)).text
        message: dict[str, Any] = {"role": "assistant", "content": None if fault in ("null", "refusal") else text}
        if fault == "refusal":
            message["refusal"] = "I can't help with that."
        answer: dict[str, Any] = {
            "choices": []
            if fault == "empty"
            else [{"index": 0, "finish_reason": "length" if fault == "length" else "stop", "message": message}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 2},
        }
        if fault == "nousage":
            del answer["usage"]
        data = json.dumps(answer).encode()
        if fault == "truncated":
            data = data[: len(data) // 2]
        if fault in ("reset", "slowloris"):
            return self.break_off(data, fault)
        self.send(200, data)

    def send(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def break_off(self, data: bytes, fault: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault == "slowloris":
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.2)
            return
        self.wfile.write(data[: len(data) // 2])
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

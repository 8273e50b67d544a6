"""A proxy before a model server: counts each arm's calls and tokens, ends a search at its ceiling, and resumes it.

`/ARM/v1/...` is sent on as `/v1/...`. Each answer is a line of FOLDER/ARM.jsonl. An arm that was killed and begins
again gets from there what it asked before, request by request, as long as it asks the same; only what is new is sent.
At temperature 0 all arms get the same answer to the same request: the first one. It counts as a call of each.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

#: Seconds for one answer: a small model on two cores takes a minute for a long one.
TIMEOUT = 900


@dataclass
class Counts:
    """Calls and tokens of an arm's search, and its calls on sealed rows. refused: calls above the ceiling, which were
    not sent. recalled: calls, of both kinds, that were answered from the log. failed: calls that the server did not
    answer, or with a status of 500 and more: peers score these rows as wrong."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0
    sealed: int = 0
    refused: int = 0
    recalled: int = 0
    failed: int = 0


@dataclass
class _Arm:
    """limit: calls of its search at most. texts: of rows; True for those that only its last test asks about. known:
    answers of the log, by request."""

    limit: int
    texts: dict[str, bool]
    known: dict[str, deque[dict[str, Any]]]
    counts: Counts = field(default_factory=Counts)


class Proxy:
    """A server in a thread, for as long as the `with` block runs."""

    def __init__(self, upstream: str, folder: Path):
        self.upstream, self.folder = urlsplit(upstream), folder
        self._arms: dict[str, _Arm] = {}
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        #: First answers at temperature 0, by request.
        self._greedy: dict[str, dict[str, Any]] = {}
        for log in sorted(folder.glob("*.jsonl")):
            for key, lines in _read(log).items():
                self._share(key, lines[0])

    def __enter__(self) -> Proxy:
        self._server = Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def begin(self, arm: str, limit: int, sealed: Iterable[str], others: Iterable[str] = ()) -> Counts:
        """Let an arm begin, or begin again, and return what is counted of it.

        Args:
            sealed, others: texts of the rows that the last test asks about, and of those that the search does.
        """
        texts = dict.fromkeys(others, False) | dict.fromkeys(sealed, True)
        found = self._arms[arm] = _Arm(limit, texts, _read(self.folder / f"{arm}.jsonl"))
        return found.counts

    def ask(self, arm: str, path: str, body: bytes) -> tuple[int, bytes]:
        """(status, body) of the answer to an arm's request."""
        own, key = self._arms[arm], hashlib.sha256(path.encode() + b"\n" + body).hexdigest()
        sealed = _is_sealed(body, own.texts)
        with self._lock:
            if not sealed and own.counts.calls >= own.limit:
                own.counts.refused += 1
                return 400, json.dumps({"error": {"message": f"the ceiling of {own.limit} calls"}}).encode()
            own.counts.sealed += sealed
            own.counts.calls += not sealed
            known = own.known.get(key)
            line = known.popleft() if known else self._greedy.get(key)
            own.counts.recalled += line is not None
        if line is None:
            try:
                status, data = self._send(path, body)
            except OSError as error:
                status, data = 502, json.dumps({"error": {"message": f"the model server: {error}"}}).encode()
            if status != 200:
                with self._lock:
                    own.counts.failed += status >= 500
                return status, data
            line = {"key": key, "asked": json.loads(body), "answer": json.loads(data)}
            with self._lock, (self.folder / f"{arm}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                self._share(key, line)
        usage = line["answer"].get("usage") or {}
        with self._lock:
            own.counts.prompt += 0 if sealed else usage.get("prompt_tokens", 0)
            own.counts.completion += 0 if sealed else usage.get("completion_tokens", 0)
        return 200, json.dumps(line["answer"]).encode()

    def _share(self, key: str, line: dict[str, Any]) -> None:
        if line["asked"].get("temperature") == 0:
            self._greedy.setdefault(key, line)

    def _send(self, path: str, body: bytes) -> tuple[int, bytes]:
        link = http.client.HTTPConnection(self.upstream.hostname or "", self.upstream.port, timeout=TIMEOUT)
        try:
            link.request("POST", path, body, {"Content-Type": "application/json"})
            answer = link.getresponse()
            return answer.status, answer.read()
        finally:
            link.close()


class JsonHandler(BaseHTTPRequestHandler):
    """A handler that logs nothing, and keeps its connections open."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def reply(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Handler(JsonHandler):
    proxy: Proxy

    def do_POST(self) -> None:
        arm, _, rest = self.path.lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.reply(*self.proxy.ask(arm, f"/{rest}", body))


class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 256


def _read(file: Path) -> dict[str, deque[dict[str, Any]]]:
    """The answers of a log by request, without a last line that a kill cut short."""
    known: dict[str, deque[dict[str, Any]]] = defaultdict(deque)
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        known[line["key"]].append(line)
    return known


def _is_sealed(body: bytes, texts: Mapping[str, bool]) -> bool:
    """Return whether the row that a request asks about is a sealed one: of the texts in its last message the one that
    ends last, as examples come before it; and of several the longest, as one may be part of another."""
    content = json.loads(body)["messages"][-1]["content"]
    if not isinstance(content, str):
        content = "\n".join(part.get("text", "") for part in content or ())
    found = [(content.rfind(text) + len(text), len(text), sealed) for text, sealed in texts.items() if text in content]
    return max(found, default=(0, 0, False))[2]

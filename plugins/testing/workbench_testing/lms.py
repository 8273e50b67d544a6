"""Checks of an LM provider's contract: one attempt a call, typed errors, no secret in what is stored.

A provider that talks to a server is given the address of one on this machine, which answers and fails as the checks
need. For a model that runs in this process, what is about servers does not apply: the server sees no request.

One file: one suite of checks, and the server that they need.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, TypeVar

from workbench.errors import FailureKind, LMError
from workbench.lm import LM, Request, Response
from workbench_testing.case import assert_documented, checks_in, name_of, run_all

Result = TypeVar("Result")

KEY = "sk-key-of-the-conformance-suite-0123456789"
_FINISHES = ("stop", "length", "refusal", "empty", "tool_calls")
#: Seconds in which a failed attempt must be reported, however long the server asks to wait.
_AT_ONCE, _ASKED = 10.0, 60
_HELLO = Request(({"role": "user", "content": "Say hello."},), max_tokens=16)


#: An answer in the form of OpenAI's chat completions, which most servers speak.
CHAT_COMPLETION = (
    b'{"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "finish_reason": '
    b'"stop", "message": {"role": "assistant", "content": "hello"}}], "usage": {"prompt_tokens": 11, '
    b'"completion_tokens": 7, "total_tokens": 18}}'
)


class _Listening(ThreadingHTTPServer):
    request_queue_size = 128  # of five, as by default, the sixth request at once waits a second


class ChatServer:
    """A server on this machine that answers each request with one status and body. Use it with `with`.

    `address` is where it listens, `requests` how many it has seen.

    Args:
        status: of the response; 0 closes the connection without one.
        body: of the response.
        headers: besides its length and type.
    """

    def __init__(self, status: int = 200, body: bytes = CHAT_COMPLETION, headers: Mapping[str, str] | None = None):
        self.requests = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True  # else a body waits 40 ms for its head

            def do_POST(self) -> None:
                server.requests += 1
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if not status:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = _Listening(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
        self.address = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True)
class LMCase:
    """A provider of language models.

    Args:
        make: makes an LM that asks the server at an address; one that needs no server ignores it.
        answer: what the server answers, in the form of the provider; default: OpenAI's chat completion.
        key_variable: the environment variable that the key is read from, if there is one.
    """

    make: Callable[[str], LM]
    answer: bytes = CHAT_COMPLETION
    key_variable: str | None = None


def check_lm(make: Callable[[str], LM], **more: Any) -> None:
    """Run all checks on a provider; the arguments are those of LMCase. Raises AssertionError that says what to fix."""
    run_all(lm_checks(), LMCase(make, **more))


def lm_checks() -> list[Callable[[LMCase], None]]:
    """All checks, for `pytest.mark.parametrize`."""
    return checks_in(__name__)


@contextmanager
def _with_key(case: LMCase) -> Generator[None]:
    if case.key_variable is None:
        yield
        return
    before = os.environ.get(case.key_variable)
    os.environ[case.key_variable] = KEY
    try:
        yield
    finally:
        if before is None:
            del os.environ[case.key_variable]
        else:
            os.environ[case.key_variable] = before


def _use(case: LMCase, server: ChatServer, use: Callable[[LM], Awaitable[Result]]) -> Result:
    """Make the LM, use it in an event loop of its own, and close it."""

    async def main() -> Result:
        async with aclosing(case.make(server.address)) as lm:
            return await use(lm)

    with _with_key(case):
        return asyncio.run(main())


def _attempt(case: LMCase, server: ChatServer, request: Request = _HELLO) -> tuple[Response | None, Exception | None]:
    """(response, error) of one call, and never later than a failed attempt must be reported."""

    async def ask(lm: LM) -> tuple[Response | None, Exception | None]:
        try:
            return await asyncio.wait_for(lm.complete(request), _AT_ONCE), None
        except Exception as error:
            return None, error

    return _use(case, server, ask)


def _name(case: LMCase) -> str:
    with _with_key(case):
        return name_of(case.make("http://127.0.0.1:9/v1"))


def check_lm_has_its_attributes(case: LMCase) -> None:
    """`identity`, the same for equal settings, `concurrency`, `complete`, `price`, `aclose`, and a docstring."""
    with _with_key(case):
        lm, again = (case.make("http://127.0.0.1:9/v1") for _ in range(2))
    assert isinstance(lm, LM), (
        f"{name_of(lm)} lacks a part of workbench.lm.LM: identity, concurrency, complete, price, aclose"
    )
    assert_documented(lm, name_of(lm))
    assert isinstance(lm.identity, str) and lm.identity, f"{name_of(lm)}.identity must be a text, not {lm.identity!r}"
    assert lm.identity == again.identity, (
        f"{name_of(lm)}.identity differs between two of equal settings ({lm.identity!r}, {again.identity!r}): the "
        "journal finds recorded answers by it"
    )
    assert isinstance(lm.concurrency, int) and lm.concurrency >= 1, f"{name_of(lm)}.concurrency must be at least 1"


def check_lm_answers(case: LMCase) -> None:
    """A response has a text, a known `finish`, counted tokens, and a price that is a number or None."""
    with ChatServer(body=case.answer) as server:
        found, error = _attempt(case, server)
    assert error is None and found is not None, f"{_name(case)} did not answer: {type(error).__name__}: {error}"
    assert isinstance(found, Response) and isinstance(found.text, str), (
        f"{_name(case)} must return a workbench.lm.Response"
    )
    assert found.finish in _FINISHES, (
        f"{_name(case)}: finish is '{found.finish}', which is none of {', '.join(_FINISHES)}"
    )
    for name in ("prompt_tokens", "completion_tokens"):
        count = getattr(found, name)
        assert isinstance(count, int) and count >= 0, f"{_name(case)}: {name} must be a number from 0, not {count!r}"
    assert found.usd is None or (math.isfinite(found.usd) and found.usd >= 0), f"{_name(case)}: usd is {found.usd!r}"


def check_lm_stores_no_key(case: LMCase) -> None:
    """Neither `identity` nor the message of an error holds the key, though the server repeats it: both are stored."""
    if case.key_variable is None:
        return
    with _with_key(case):
        lm = case.make("http://127.0.0.1:9/v1")
    assert KEY not in lm.identity, f"{name_of(lm)}.identity holds the key, and is stored in the run database"
    with ChatServer(401, b'{"error": {"message": "wrong key: %s"}}' % KEY.encode()) as server:
        _, error = _attempt(case, server)
    assert KEY not in str(error), f"{name_of(lm)}: the message of an error holds the key: use workbench.lm.redact"


def check_lm_sends_once(case: LMCase) -> None:
    """Whatever fails, `complete` sends one request: the ledger counts, pays and repeats."""
    for status in (200, 400, 429, 500, 503, 0):
        with ChatServer(status, case.answer) as server:
            _attempt(case, server)
        assert server.requests <= 1, (
            f"{_name(case)} sent {server.requests} requests for one call (status {status or 'none'}): switch off the "
            "retries of its client"
        )


def check_lm_does_not_wait_for_rate_limits(case: LMCase) -> None:
    """A 429 is raised at once, with the seconds that the server asks to wait in `retry_after`."""
    with ChatServer(429, b'{"error": {"message": "slow down"}}', {"Retry-After": str(_ASKED)}) as server:
        _, error = _attempt(case, server)
    if not server.requests:
        return
    assert not isinstance(error, TimeoutError), (
        f"{_name(case)} waits for a rate limit: raise LMError('rate_limit', ..., retry_after=seconds)"
    )
    assert isinstance(error, LMError) and error.kind == FailureKind.RATE_LIMIT, (
        f"{_name(case)}: a 429 is an LMError('rate_limit', ...), not {type(error).__name__}: {error}"
    )
    assert error.retry_after == _ASKED, f"{_name(case)}: Retry-After is {_ASKED}, retry_after {error.retry_after}"


def check_lm_raises_lm_errors(case: LMCase) -> None:
    """Statuses, bodies that are no answer, closed connections, and requests that the model does not take."""
    bodies = (b"", b"<html>Bad gateway</html>", b"[1, 2]", b'{"choices": []}', b"\xff\xfe")
    failures = [*((status, b"{}") for status in (400, 401, 404, 500, 502, 0)), *((200, body) for body in bodies)]
    for status, body in failures:
        with ChatServer(status, body) as server:
            found, error = _attempt(case, server)
        if server.requests:
            assert isinstance(error, LMError), (
                f"{_name(case)}, for the status {status or 'none'} with the body {body!r}: "
                + (f"it raised {type(error).__name__}: {error}" if error else f"it answered {found and found.text!r}")
                + ". Raise LMError(kind, message)"
            )
    odd = (Request(({"role": "user", "content": "word " * 200_000},)), Request(_HELLO.messages, tools=({"x": 1},)))
    for request in odd:
        with ChatServer(body=case.answer) as server:
            _, error = _attempt(case, server, request)
        assert error is None or isinstance(error, LMError), (
            f"{_name(case)} raised {type(error).__name__} for a request that it does not take: {error}. Raise "
            "LMError('too_long' or 'unsupported', message)"
        )


def check_lm_tells_failures_apart(case: LMCase) -> None:
    """A wrong key is `auth`; a server's fault may be tried again; a wrong request may not."""
    expected = {401: (FailureKind.AUTH, False), 500: (None, True), 503: (None, True), 400: (None, False)}
    for status, (kind, retryable) in expected.items():
        with ChatServer(status, b'{"error": {"message": "no"}}') as server:
            _, error = _attempt(case, server)
        if not server.requests or not isinstance(error, LMError):
            continue
        assert kind is None or error.kind == kind, f"{_name(case)}: {status} is '{error.kind}', it must be '{kind}'"
        assert error.kind.retryable == retryable, (
            f"{_name(case)}: {status} is '{error.kind}', which is {'' if error.kind.retryable else 'not '}tried again"
        )


def check_lm_price(case: LMCase) -> None:
    """`price` is None or a number from 0, and more tokens do not cost less: budgets are reserved by it."""
    with _with_key(case):
        lm = case.make("http://127.0.0.1:9/v1")
    sizes = ((0, 0), (1, 1), (1000, 0), (1000, 1000), (2_000_000, 1_000_000))
    prices = [lm.price(*size) for size in sizes]
    assert all(p is None for p in prices) or all(p is not None and math.isfinite(p) and p >= 0 for p in prices), (
        f"{name_of(lm)}.price gives {prices}: dollars from 0, 0.0 for a local model, None where it is unknown"
    )
    known = [price for price in prices if price is not None]
    assert known == sorted(known), f"{name_of(lm)}.price falls with more tokens: {known}"


def check_lm_takes_requests_at_once(case: LMCase) -> None:
    """Several requests in flight are all answered."""

    async def ask(lm: LM) -> list[Response | BaseException]:
        calls = (lm.complete(Request(_HELLO.messages, max_tokens=8, replica=i, temperature=1.0)) for i in range(8))
        return await asyncio.gather(*calls, return_exceptions=True)

    with ChatServer(body=case.answer) as server:
        failed = [found for found in _use(case, server, ask) if not isinstance(found, Response)]
    assert not failed, f"{_name(case)}: {len(failed)} of 8 requests in flight failed: {failed[0]!r}"

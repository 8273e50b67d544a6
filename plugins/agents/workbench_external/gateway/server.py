"""The server: its address, limits and deadlines, and the handling of requests in flight."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache, partial
from socket import gethostname
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import NOTHING, FailureKind, SpecError
from workbench.lm import is_loopback
from workbench_external.gateway.access import (
    MAX_AT_ONCE,
    Admitted,
    Door,
    check_sender,
    in_address,
    own_names,
    variables_for,
)
from workbench_external.gateway.asks import GatewaySession, Refused, refusal_of
from workbench_external.gateway.endpoints import Dialect, Endpoint, asked_of, dialect_of, find_endpoint, pass_on
from workbench_external.gateway.passed import Passed
from workbench_external.gateway.streaming import (
    Stream,
    as_it_came,
    encode,
    hang_up,
    send_beginning,
    send_forwarded,
)
from workbench_kit.wire import MAX_BODY, Forwarded, storable

if TYPE_CHECKING:
    from aiohttp import web

#: Seconds for the body of a request to arrive; seconds for answers to be written when the gateway closes.
BODY_SECONDS, CLOSE_SECONDS = 30.0, 1.0

#: /s/SECRET, a prefix that clients add, and the endpoint.
_PATH = re.compile(r"(?:/s/([^/]*))?(?:/openai)?(?:/v1(?:alpha|beta)?|/deployments/[^/]+)?(/.*)?")
_SLASHES = re.compile("//+")
#: JSON escape of a surrogate, which no text encoding can hold alone.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

#: Addresses that stand for all addresses of a machine.
_EVERYWHERE = ("0.0.0.0", "[::]")

#: aiohttp would log unreadable requests, with a traceback and any secret in their URL.
_QUIET = logging.Logger("workbench_external.gateway", logging.CRITICAL + 1)


@cache
def _handler_class() -> type[web.RequestHandler]:
    from aiohttp import web

    class Handler(web.RequestHandler):
        """Refuses invalid HTTP without repeating it: its first line may contain the secret."""

        __slots__ = ()

        def handle_error(
            self,
            request: web.BaseRequest,
            status: int = 500,
            exc: BaseException | None = None,
            message: str | None = None,
        ) -> web.StreamResponse:
            return super().handle_error(request, status, exc, "The request is not valid HTTP/1.1.")

    return Handler


class Gateway:
    """Answers agents on this machine. Use it in the event loop that opened it, and close it with `aclose`."""

    def __init__(self, on_error: Callable[[Exception], None] | None = None):
        self.address, self._names = "", None
        self._door, self._on_error, self._draining = Door(), on_error, False
        self._listening: asyncio.Server | None = None
        self._server: web.Server | None = None

    @classmethod
    async def open(
        cls,
        host: str = "127.0.0.1",
        port: int = 0,
        on_error: Callable[[Exception], None] | None = None,
        *,
        beyond: bool = False,
    ) -> Gateway:
        """Open a gateway, and listen.

        Args:
            host: a loopback address.
            port: 0 takes a free one.
            beyond: allow a host that other machines and containers can reach; they need the secret.
            on_error: called with exceptions that are not reported to an agent: faults of a session or of ours.
        Raises SpecError for a host that other machines can reach, unless allowed, and OSError if the port is taken.
        """
        from aiohttp import web

        host = in_address(host)
        local = is_loopback(f"http://{host}")
        if not (local or beyond):
            raise SpecError(f"a gateway cannot listen at {host}", hint="It is for agents on this machine: 127.0.0.1.")
        made = cls(on_error)
        loop = asyncio.get_running_loop()
        made._server = web.Server(made._handle, handler_cancellation=True)
        settings: dict[str, Any] = {"access_log": None, "logger": _QUIET, "auto_decompress": False}
        connect = partial(_handler_class(), made._server, loop=loop, **settings)
        listening = await loop.create_server(connect, host.strip("[]"), port, backlog=1024)
        made._listening, taken = listening, listening.sockets[0].getsockname()[1]
        shown = gethostname() if host in _EVERYWHERE else host
        made.address, made._names = f"http://{shown}:{taken}", own_names(host, taken) if local else None
        return made

    def admit(self, session: GatewaySession, secret: str | None = None) -> str:
        """Admit a session, and return the secret for its requests; None: a new one. Raises SpecError if it is too
        short, unfit for a URL, or in use."""
        return self._door.admit(session, secret)

    async def dismiss(self, secret: str) -> None:
        """End a session. Later requests get 401; those in flight are cancelled and awaited."""
        if (who := self._door.dismiss(secret)) is not None:
            await _cancel(who)

    def environment(
        self, secret: str, inherited: Mapping[str, str] | None = None, *, in_path: bool = True
    ) -> dict[str, str]:
        """Return the environment variables that point the stock clients of an agent here.

        inherited: the rest of the agent's environment; None: this process's. Variables of further providers (Azure, and
        those of LiteLLM) are replaced if it has some, and never added. in_path: put the secret in the URLs, too, for an
        agent with a key of its own in its configuration; clients write URLs to logs.
        """
        url = f"{self.address}/s/{secret}" if in_path else self.address
        return variables_for(url, secret, os.environ if inherited is None else inherited)

    async def drain(self, seconds: float) -> int:
        """Wait for requests in flight; new ones are refused with 503. Returns the number that did not end in time."""
        self._draining = True
        ends = [end for who in self._door.everybody() for end in who.requests.values()]
        return len((await asyncio.wait(ends, timeout=seconds))[1]) if ends else 0

    async def aclose(self) -> None:
        """Stop listening, and end all sessions."""
        listening, server, self._listening, self._server = self._listening, self._server, None, None
        if listening is None or server is None:
            return
        listening.close()
        await _cancel(*self._door.dismiss_all())
        await server.shutdown(CLOSE_SECONDS)
        await listening.wait_closed()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        in_path, path = _split(request.path)
        path = path.rstrip("/")
        dialect, who = dialect_of(path, request.headers), None
        try:
            check_sender(request.headers, self._names)
            shown = request.query.getall("key", ()) if dialect.key_in_query else ()
            who = self._door.find(in_path, request.headers, shown)
            if self._draining:
                raise Refused(503, FailureKind.SERVER, "This gateway is about to end. Try again.", retry_after=1)
            if request.headers.get("Upgrade", "").lower() == "websocket":  # Codex then falls back to HTTP at once
                text = "This gateway has no WebSockets. Ask by HTTP."
                raise Refused(426, "upgrade_required", text, headers={"Upgrade": "HTTP/1.1"})
            forwards = hasattr(who.session, "passes_path")
            endpoint, named = find_endpoint(request.method, path, dialect, forwards=forwards)
            if len(who.requests) >= MAX_AT_ONCE:
                raise Refused(429, "rate_limit", f"More than {MAX_AT_ONCE} requests at once.", retry_after=1)
        except Refused as refused:
            # Clients probe with GET and HEAD for optional features.
            if who is not None and request.method == "POST" and refused.status in (404, 405):
                self._told(refused, who)
            return await _refusal(request, refused, dialect)
        here = asyncio.current_task()
        assert here is not None, "the server has a task for each request"
        who.requests[here] = ended = here.get_loop().create_future()
        try:
            return await self._answer(request, who, endpoint, named)
        except asyncio.CancelledError:
            if here.cancelling():  # else the answering task was cancelled, not this request
                if not who.dismissed:
                    raise  # the agent hung up
                here.uncancel()
            return await _refusal(
                request, Refused(401, "ended", "The session of this secret has ended."), endpoint.dialect
            )
        finally:
            del who.requests[here]
            ended.set_result(None)

    async def _answer(
        self, request: web.BaseRequest, who: Admitted, endpoint: Endpoint, named: str
    ) -> web.StreamResponse:
        written, begun = _as_written(request), False
        try:
            if endpoint.answer is pass_on:
                _let_come(request)
                raw = request.content.iter_any() if request.body_exists else b""
                asked = asked_of(endpoint, written, {}, named, request.headers, raw)
            else:
                raw = await _read_body(request)
                body = _loaded(request, raw) if endpoint.method == "POST" else {}
                asked = asked_of(endpoint, written.rstrip("/"), body, named, request.headers, raw)
            if asked.pieces.wanted:
                return await Stream(request, who, endpoint, asked, self._told).send()
            answer = await endpoint.answer(who, asked)
            if begun := isinstance(answer, Forwarded):
                return await send_forwarded(request, answer, _own_base(request, written))
            return as_it_came(answer) if isinstance(answer, Passed) else _json(answer)
        except Exception as error:
            refused = self._told(error, who)
            return hang_up(request) if begun else await _refusal(request, refused, endpoint.dialect)

    def _told(self, error: Exception, who: Admitted) -> Refused:
        refused = refusal_of(error)
        if (note := getattr(who.session, "note_refusal", None)) is not None:
            note(error)
        if refused.kind == "internal" and self._on_error is not None:
            self._on_error(error)
        return refused


def _split(path: str) -> tuple[str | None, str]:
    """Split a path into (its secret or None, the endpoint)."""
    found = _PATH.fullmatch(_SLASHES.sub("/", path) if "//" in path else path)
    return (found[1], found[2] or "/") if found is not None else (None, path)


def _as_written(request: web.BaseRequest) -> str:
    """Return the endpoint and query as the client encoded them: a decoded `%2F` or `%26` would change their meaning."""
    url = request.rel_url
    path, query = _split(url.raw_path)[1], url.raw_query_string
    own = [one for one in query.split("&") if unquote(one.partition("=")[0]) != "key"]  # it may hold the secret
    return "?".join([path, *(["&".join(own)] if any(own) else [])])


def _own_base(request: web.BaseRequest, written: str) -> str:
    """Return the URL before the endpoint, as the client wrote it."""
    path, here = written.partition("?")[0], _SLASHES.sub("/", request.rel_url.raw_path)
    return f"{request.scheme}://{request.host}{here.removesuffix(path)}"


def _let_come(request: web.BaseRequest) -> None:
    """Ask for the body if the client waits for permission to send it."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def _read_body(request: web.BaseRequest) -> bytes:
    """Read the body of a request. Raises Refused if it is too long or too slow."""
    if (request.content_length or 0) > MAX_BODY:
        raise _too_long()
    _let_come(request)
    raw = bytearray()
    try:
        # Most bodies arrive with their headers, and need no timeout.
        async with nullcontext() if request.content.is_eof() else asyncio.timeout(BODY_SECONDS):
            async for part in request.content.iter_any():
                raw += part
                if len(raw) > MAX_BODY:
                    raise _too_long()
    except TimeoutError:
        raise Refused(408, "timeout", "The request did not arrive in time.") from None
    return bytes(raw)


def _loaded(request: web.BaseRequest, raw: bytes) -> dict[str, Any]:
    """Parse the object in a body. Raises Refused if it is compressed or not an object."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Refused(415, "bad_request", "Send the body as it is, without Content-Encoding.")
    try:
        body = _DECODER.decode(raw.decode(json.detect_encoding(raw), "surrogatepass"))
    except (ValueError, RecursionError):  # the former also for numbers with too many digits, and other encodings
        raise Refused(400, "bad_request", "The body is not JSON. Send one JSON object in UTF-8.") from None
    if not is_dict(body):
        raise Refused(400, "bad_request", 'The body must be a JSON object. Send {"model": ..., ...}.')
    return _whole(body) if _HALF.search(raw) else body


def _too_long() -> Refused:
    return Refused(413, "too_long_body", f"A request has at most {MAX_BODY} bytes. Send less, e.g. smaller images.")


def _finite(text: str) -> float:
    """Parse a number. Raises ValueError for NaN and infinities, including 1e999, which JSON does not have."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a JSON number")
    return value


_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)


def _whole(value: Any) -> Any:
    """Return a value with '?' for lone surrogates (\\ud83d alone), which cannot be stored or sent."""
    if isinstance(value, str):
        return storable(value)
    if is_list(value):
        return [_whole(one) for one in value]
    return {_whole(key): _whole(one) for key, one in value.items()} if is_dict(value) else value


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    from aiohttp import web

    content = encode(body).encode()
    return web.Response(body=content, status=status, headers=headers, content_type="application/json")


async def _refusal(request: web.BaseRequest, refused: Refused, dialect: Dialect) -> web.StreamResponse:
    status, headers, body = refused.passed or NOTHING
    if refused.broke and not status:
        return hang_up(request)
    if status:
        passed = Passed(body, headers, status)
        return await send_beginning(request, passed) if refused.broke else as_it_came(passed)
    return _json(dialect.write_error(refused), refused.status, refused.all_headers())


async def _cancel(*clients: Admitted) -> None:
    """Cancel the requests of clients and await their end."""
    ends: list[asyncio.Future[None]] = []
    for task, end in [one for who in clients for one in who.requests.items()]:
        if task is not asyncio.current_task():
            task.cancel()
            ends.append(end)
    if ends:
        await asyncio.wait(ends)

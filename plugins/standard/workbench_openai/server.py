"""A model's server over HTTP: one POST per call, whole or streamed; typed outcomes, no retries, no redirects."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from workbench.errors import NOTHING, LMError, SpecError
from workbench.lm import API_PATHS, is_loopback
from workbench_kit.wire import MAX_BODY, Forwarded, Mask, describe_redirect, header_text, redact, redactor
from workbench_openai import wire

Answer = TypeVar("Answer")
#: Converts (status, headers, body).
Read = Callable[[int, Mapping[str, str], bytes], Answer]

#: The ledger and the caller enforce the deadline of a call.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30)
#: Headers of one connection (RFC 9110, 7.6.1), or of the route to the server.
_OF_CONNECTION = frozenset(
    "connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade alt-svc".split()
)
#: Headers left out of an answer that a journal may repeat: the body's encoding on the connection, and those that each
#: server sets itself, such as cookies.
_OF_ONE_ANSWER = _OF_CONNECTION | frozenset(
    "content-length content-encoding content-type set-cookie date server via strict-transport-security".split()
)
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}
_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_END = max(map(len, _ENDS))


class Server:
    """The address, keys and connections of one model. Use it from asyncio; close it with `aclose`.

    headers: from the settings, may hold secrets. told: from the API, hold none. write_key: makes the header with the
    key. redact_answer: removes what was sent from texts of an answer.
    """

    def __init__(
        self,
        model: str,
        base: URL,
        headers: Mapping[str, str],
        key_variable: str | None,
        *,
        key_needed: bool,
        concurrency: int,
        write_key: Callable[[str], tuple[str, str]] = lambda key: ("Authorization", f"Bearer {key}"),
        told: Mapping[str, str] | None = None,
    ):
        self.model, self.base, self.headers, self._told = model, base, headers, told or {}
        self.key_variable, self._key_needed, self._write_key = key_variable, key_needed, write_key
        self._concurrency, own = concurrency, {*map(str.lower, headers)}
        self._json = {name: value for name, value in _JSON.items() if name.lower() not in own}
        self._proxy = None if is_loopback(str(base)) else _proxy(base)
        self._urls: dict[str, URL] = {}
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        self.sent_key, self.redact_answer = "", redactor("", headers)  # no key has been sent yet

    def url(self, path: str) -> URL:
        """Return the address of a path below the base. A query in the path is added to that of the base."""
        if (known := self._urls.get(path)) is not None:
            return known
        url = URL(f"{self.base.with_query(None)}".rstrip("/") + f"/{path}")  # encoded characters stay encoded
        if self.base.query:
            url = url.with_query(self.base.query).update_query(url.query)
        if path in API_PATHS.values():
            self._urls[path] = url
        return url

    async def send(
        self,
        url: URL,
        body: bytes,
        read: Read[Answer],
        headers: Mapping[str, str] | None = None,
        *,
        streams: bool = False,
        reader: StreamReader | None = None,
        passes: bool = False,
    ) -> Answer:
        """Send a POST and return the result of `read` on the answer.

        Args:
            reader: receives a streamed answer, event by event.
            passes: report a broken connection to the client, which asks again as it would without us.

        Raises LMError.
        """
        headers = {**(headers or {}), **self._json}
        if streams:
            headers["Accept"] = "text/event-stream"
        heard = _Heard()
        try:
            with self._failing(url):
                await self._post(url, body, headers, reader, heard)
                return read(heard.status, heard.headers, heard.raw)
        except LMError as error:
            told = self._explained(error, b"" if error.hung_up else heard.raw, url, heard.headers)
            if passes and error.hung_up:
                self._break_off(told, heard)
            raise told from None

    async def fetch(
        self, method: str, path: str, body: bytes | AsyncIterable[bytes] | None, headers: Mapping[str, str]
    ) -> Forwarded:
        """Return the answer to a request that asks no model. Raise LMError."""
        url = self.url(path)
        session = self._sessions.get(asyncio.get_running_loop()) or self._open()
        with self._failing(url):
            answer = await session.request(
                method,
                url,
                data=body,
                headers={**headers, "Accept-Encoding": "identity"},  # a key cannot be found in a compressed body
                skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
                allow_redirects=False,
                proxy=self._proxy,
                middlewares=(_once,),
            )
        _acknowledge(answer)
        base = f"{self.base.with_user(None).with_query(None)}".rstrip("/")
        asked = f"{url.with_user(None)}"
        return Forwarded(answer.status, self._headers(answer), self._chunks(url, answer), answer.close, asked, base)

    def _headers(self, answer: aiohttp.ClientResponse) -> list[tuple[str, str]]:
        left_out = _OF_CONNECTION
        if "Content-Encoding" in answer.headers:
            left_out |= {"content-encoding", "content-length"}
        return [
            (name, header_text(self.redact_answer(value)))
            for name, value in answer.headers.items()
            if name.lower() not in left_out
        ]

    async def _chunks(self, url: URL, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        mask = Mask(self.sent_key, self.headers)
        with self._failing(url):
            async for chunk in answer.content.iter_any():
                if passed := mask.add(chunk):
                    yield passed
        if rest := mask.end():
            yield rest

    @contextmanager
    def _failing(self, url: URL) -> Generator[None]:
        """Wrap a request: raise LMError for errors of its connection."""
        try:
            yield
        except aiohttp.ConnectionTimeoutError as error:
            raise LMError("connection", f"{url.host}: {error}") from None  # nothing left
        except TimeoutError as error:
            raise LMError("timeout", f"{url.host}: {error or 'timed out'}") from None
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, aiohttp.ClientConnectorError):
                raise _unreached(error.host, error.port, error) from None
            kind = "connection" if isinstance(error, aiohttp.InvalidURL) else "broken"
            raise LMError(kind, self.redacted(f"{url.host}: {type(error).__name__}: {error}")[:400]) from None

    async def _post(
        self,
        url: URL,
        body: bytes,
        headers: Mapping[str, str],
        reader: StreamReader | None,
        heard: _Heard,
    ) -> None:
        session = self._sessions.get(asyncio.get_running_loop()) or self._open()
        # No redirects: they would turn the POST into a GET, and could carry the key elsewhere.
        asked = session.post(url, data=body, headers=headers, allow_redirects=False, proxy=self._proxy)
        async with asked as answer:
            _acknowledge(answer)
            heard.status, heard.headers = answer.status, answer.headers
            if (answer.content_length or 0) > MAX_BODY:
                answer.close()  # or the rest would be read on the way out
                raise LMError("bad_body", f"a body of {answer.content_length} bytes, over {MAX_BODY}")
            relay = None
            if reader is not None and answer.status == 200 and answer.content_type == "text/event-stream":
                relay = _Relay(reader, self.redact_answer)
                reader.begin(self.told_headers(answer.headers))
            size = 0
            async for chunk in answer.content.iter_any():
                heard.chunks.append(chunk)
                size += len(chunk)
                if size > MAX_BODY:
                    answer.close()
                    raise LMError("bad_body", f"a body over {MAX_BODY} bytes")
                if relay is not None:
                    relay.add(chunk)
            if relay is not None:
                relay.end()

    def _open(self) -> aiohttp.ClientSession:
        """Return the session of the running event loop, with its pool of connections."""
        key = self.key()
        headers = {**self._told, **self.headers}
        if key:
            headers.setdefault(*self._write_key(key))
            self.sent_key, self.redact_answer = key, redactor(key, self.headers)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=max(1, self._concurrency), keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=_TIMEOUT,
        )
        self._sessions[asyncio.get_running_loop()] = session
        return session

    def check_key(self) -> None:
        """Raise LMError if the server needs a key and there is none."""
        if self._key_needed and not self.sent_key:
            self.key()

    def check_listening(self) -> None:
        """Raise LMError if the server is on this machine and nothing listens there. Others are not asked."""
        host, port = self.base.host, self.base.port
        if host is None or port is None or not is_loopback(str(self.base)):
            return
        try:
            socket.create_connection((host, port), timeout=1.0).close()
        except OSError as error:
            raise _unreached(host, port, error) from None

    def key(self) -> str | None:
        """Return the key. Raise LMError if the server needs one and there is none."""
        key = os.environ.get(self.key_variable, "").strip() if self.key_variable else ""
        if not key and self._key_needed:
            raise LMError("auth", f"{self.model} needs an API key: set the variable {self.key_variable}")
        return key or None

    def _explained(self, error: LMError, raw: bytes, url: URL, headers: Mapping[str, str]) -> LMError:
        """Return the same error with the first 200 characters of the body, and advice where there is any.

        The body is redacted first, so that no half of a key remains.
        """
        text = str(error)
        if raw:
            text += f": {self.redacted(wire.text_of(raw)).strip()[:200]}"
        if error.kind == "auth" and error.status and not self.headers:
            none = "no API key was sent; name its variable with api_key_env"
            text += f" ({f'the key in the variable {self.key_variable} was sent' if self.sent_key else none})"
        if moved := describe_redirect(error.status or 0, headers, str(url)):
            text += self.redacted(moved)
        if error.status in (404, 405):
            text += self.redacted(f" (asked: {url.with_user(None).with_query(None)}, for {self.model})")
        if error.kind == "unsupported" and any(word in text.lower() for word in ("tool", "function")):
            text += " (for an agent without tools of the server, write native: false)"
        return LMError(error.kind, text, retry_after=error.retry_after, status=error.status, passed=error.passed)

    def redacted(self, text: str) -> str:
        """Return a text for people, without any key of this machine and without the key that was sent, whose variable
        may have changed since."""
        return self.redact_answer(redact(text, self.key_variable, self.headers))

    def told_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Select an answer's headers for the client."""
        clean, told = self.redact_answer, dict[str, str]()
        for name, value in headers.items():
            if (own := name.lower()) not in _OF_ONE_ANSWER:  # several headers with one name are a list (RFC 9110, 5.3)
                value = header_text(clean(value))
                told[own] = f"{told[own]}, {value}" if own in told else value
        return told

    def let_pass(self, error: LMError, status: int, headers: Mapping[str, str], raw: bytes) -> None:
        """Add the server's answer to an error, for a client of the same API: unchanged, without the key. Redirects are
        not passed on: the client would follow them with our key."""
        if "Location" in headers:
            return
        body = self.redact_answer(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        kind = {"content-type": headers["Content-Type"]} if "Content-Type" in headers else {}
        error.passed = status, {**self.told_headers(headers), **kind}, body

    def _break_off(self, error: LMError, heard: _Heard) -> None:
        """Add the data received before the connection broke, with a length that shows the client that it is cut."""
        error.passed = NOTHING
        if heard.status:
            self.let_pass(error, heard.status, heard.headers, raw := heard.raw)
            error.passed[1]["content-length"] = heard.headers.get("Content-Length") or f"{len(raw) + 1}"

    async def aclose(self) -> None:
        """Close the connections of every event loop that used them."""
        here = asyncio.get_running_loop()
        while self._sessions:
            loop, session = self._sessions.popitem()
            if loop is here or loop.is_closed():
                await session.close()
            else:
                asyncio.run_coroutine_threadsafe(session.close(), loop)


@dataclass(slots=True)
class _Heard:
    """An answer, as far as it has arrived."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    chunks: list[bytes] = field(default_factory=list[bytes])

    @property
    def raw(self) -> bytes:
        return self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)


class StreamReader(Protocol):
    """Receives a streamed answer."""

    def begin(self, headers: Mapping[str, str]) -> None:
        """Begin an answer. headers: those for its client."""
        ...

    def add(self, events: bytes) -> None:
        """Take events. The last one is whole unless the stream has ended."""
        ...

    def end(self) -> None:
        """End the answer: the server has ended the stream."""
        ...


class _Relay:
    """Passes a stream on in whole events, since a key that the server echoes may be split over two packets."""

    def __init__(self, reader: StreamReader, clean: Callable[[str], str]):
        self._reader, self._clean, self._held = reader, clean, bytearray()

    def add(self, chunk: bytes) -> None:
        searched = max(0, len(self._held) - _LONGEST_END)  # earlier data holds no end
        self._held += chunk
        if self._held.endswith(_ENDS):
            end = len(self._held)
        else:
            places = [(self._held.rfind(mark, searched), len(mark)) for mark in _ENDS]
            end = max((place + length for place, length in places if place >= 0), default=0)
        if end:
            self._pass(bytes(self._held[:end]))
            del self._held[:end]

    def end(self) -> None:
        if self._held:
            self._pass(bytes(self._held))
        self._reader.end()

    def _pass(self, events: bytes) -> None:
        text = events.decode("utf-8", "replace")
        cleaned = self._clean(text)
        self._reader.add(events if cleaned == text else cleaned.encode())


async def _once(request: aiohttp.ClientRequest, ask: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request only once. Its client decides whether to send it again: aiohttp would repeat GET and similar
    requests after a broken connection."""
    try:
        return await ask(request)
    except aiohttp.ClientConnectorError:  # nothing was sent
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error)) from error


def _acknowledge(answer: aiohttp.ClientResponse) -> None:
    """Acknowledge the headers at once if the body is still to come.

    Simple servers send headers and body as two small packets. The second one then waits for our acknowledgement, which
    the kernel delays by 40 ms (Nagle's algorithm against delayed ACK): as long as a short call takes in all.
    """
    transport = answer.connection.transport if answer.connection is not None else None
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is not None and hasattr(socket, "TCP_QUICKACK"):
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def base_url(text: str, path: str = "/chat/completions") -> URL:
    """Return the base of a server's paths. path: an address may end with it. Raise SpecError."""
    try:
        url = URL(text)
        whole = url.path.rstrip("/")
        base = whole.removesuffix(path)
        url = url.with_path(base or "/").with_query(url.query)
    except ValueError:
        url, whole, base = URL(), "", ""
    if url.scheme not in ("http", "https") or not url.host:
        raise SpecError(f"'{text}' is not the address of a server", hint="Write, say, http://127.0.0.1:8000/v1.")
    return url if whole else url / "v1"  # a full address shows that there is no /v1


def _proxy(base: URL) -> str | None:
    # Looked up once: aiohttp's trust_env reads the environment and ~/.netrc for every request.
    return None if proxy_bypass(base.host or "") else getproxies().get(base.scheme)


def _unreached(host: str, port: int | None, error: OSError) -> LMError:
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
    if error.errno in (errno.ECONNREFUSED, socket.EAI_NONAME):
        return LMError("no_server", f"no server at {host}:{port} ({why}). Start it, or correct `api_base`.")
    return LMError("connection", f"{host}:{port}: {why}; is a server running there, and is `api_base` right?")

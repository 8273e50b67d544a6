"""Limit the bodies that other packages' HTTP clients read: at most `MAX_BODY` bytes, compressed and decompressed.

Clients on httpx, or on its successor httpx2, read and decompress an answer as a whole, so a server decides how much
memory it takes. Inside `bounded_bodies()` they count bytes as they arrive. Outside of it they are unchanged.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from workbench.errors import PluginError
from workbench_kit.wire import MAX_BODY, describe_redirect

#: Requested content codings: those that `BodyReader` decodes. Others, and several at once, are refused.
CODINGS = "gzip, deflate"

#: Client libraries that are limited, with a supported version of each.
_KNOWN = {"httpx": "0.28", "httpx2": "2.16"}

_PIECE = 256 * 1024
_inside: ContextVar[dict[str, str] | None] = ContextVar("bounded_bodies", default=None)


class BodyError(Exception):
    """A body that is too long, or has an unsupported coding."""


class RedirectError(BodyError):
    """A redirect, which is not followed: these clients would send the key there, too."""


@contextmanager
def bounded_bodies() -> Iterator[Mapping[str, str]]:
    """Limit the bodies that this task, and tasks and threads started with its context, read meanwhile.

    Yields the headers of the last answer, with lower-case names.

    Raises PluginError for a version of httpx or httpx2 that cannot be limited.
    """
    _bound_clients()
    headers = dict[str, str]()
    token = _inside.set(headers)
    try:
        yield headers
    finally:
        _inside.reset(token)


def bodies_are_bounded() -> bool:
    """Return True if the caller runs inside `bounded_bodies()`."""
    return _inside.get() is not None


def note_headers(headers: Iterable[tuple[str, str]]) -> None:
    """Pass the headers of an answer to the enclosing `bounded_bodies()`, in place of earlier ones."""
    if (noted := _inside.get()) is not None:
        noted.clear()
        noted.update((name.lower(), value) for name, value in headers)


def body_error(error: BaseException | None) -> BodyError | None:
    """Return the `BodyError` that caused an error, if any."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, BodyError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


class BodyReader:
    """Decodes one body while it arrives. Raises BodyError at construction for an unsupported coding."""

    def __init__(self, coding: str | None):
        self._coding = (coding or "identity").strip().lower()
        self._packed = self._unpacked = 0
        self._inflater: Any = None
        if self._coding not in ("identity", "gzip", "x-gzip", "deflate"):
            raise BodyError(f"a body packed as {self._coding[:40]!r}, which was not asked for")

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded parts of the data received. Raise BodyError beyond the limit and for invalid data."""
        self._packed = _counted(self._packed + len(data))
        if self._coding == "identity":
            yield data
            return
        piece = b""
        while data or len(piece) == _PIECE:  # after a full piece, output may be left although its input is used up
            if self._inflater is None or (data and self._inflater.eof):
                self._inflater = zlib.decompressobj(self._window(data))
            try:
                piece = self._inflater.decompress(data, _PIECE)
            except zlib.error as error:
                raise BodyError(f"a body that is no {self._coding}: {error}") from None
            self._unpacked = _counted(self._unpacked + len(piece))
            data = self._inflater.unconsumed_tail or self._inflater.unused_data.lstrip(b"\0")
            if piece:
                yield piece

    def finish(self) -> None:
        """Raise BodyError if the compressed body was truncated."""
        if self._inflater is not None and not self._inflater.eof:
            raise BodyError(f"a body packed as {self._coding} that breaks off")

    def _window(self, data: bytes) -> int:
        if self._coding != "deflate":
            return 16 + zlib.MAX_WBITS
        # Half of the servers send deflate without the header of zlib, which RFC 9110 asks for.
        return zlib.MAX_WBITS if data[0] & 15 == 8 and data[0] >> 4 < 8 else -zlib.MAX_WBITS


@cache
def _bound_clients() -> None:
    """Wrap, once per process, the client methods that return an answer before its body is read.

    It wraps those of httpx, and of httpx2 if it is installed (openai 3 and anthropic use it).
    """
    libraries = [import_module(name) for name in _KNOWN if find_spec(name)]
    for library in libraries:
        if not all(hasattr(client, "_send_single_request") for client in (library.AsyncClient, library.Client)):
            name, version = library.__name__, library.__version__
            raise PluginError(f"{name} {version} has no place for a bound of bodies: install {name} {_KNOWN[name]}")
    for library in libraries:
        library.AsyncClient._send_single_request = _bounded_async(library, library.AsyncClient._send_single_request)
        library.Client._send_single_request = _bounded(library, library.Client._send_single_request)


def _bounded_async(library: Any, send: Any) -> Any:
    class Stream(library.AsyncByteStream):
        def __init__(self, stream: Any, reader: BodyReader):
            self._stream, self._reader = stream, reader

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in self._stream:
                for piece in self._reader.feed(data):
                    yield piece
            self._reader.finish()

        async def aclose(self) -> None:
            await self._stream.aclose()

    @wraps(send)
    async def bounded(self: Any, request: Any) -> Any:
        if not bodies_are_bounded():
            return await send(self, request)
        request.headers["Accept-Encoding"] = CODINGS
        response = await send(self, request)
        try:
            _check_place(response, request)
            response.stream = Stream(response.stream, _reader(response.headers))
        except BodyError:
            await response.stream.aclose()
            raise
        return response

    return bounded


def _bounded(library: Any, send: Any) -> Any:
    class Stream(library.SyncByteStream):
        def __init__(self, stream: Any, reader: BodyReader):
            self._stream, self._reader = stream, reader

        def __iter__(self) -> Iterator[bytes]:
            for data in self._stream:
                yield from self._reader.feed(data)
            self._reader.finish()

        def close(self) -> None:
            self._stream.close()

    @wraps(send)
    def bounded(self: Any, request: Any) -> Any:
        if not bodies_are_bounded():
            return send(self, request)
        request.headers["Accept-Encoding"] = CODINGS
        response = send(self, request)
        try:
            _check_place(response, request)
            response.stream = Stream(response.stream, _reader(response.headers))
        except BodyError:
            response.stream.close()
            raise
        return response

    return bounded


def _check_place(response: Any, request: Any) -> None:
    note_headers(response.headers.items())
    if moved := describe_redirect(response.status_code, response.headers, str(request.url)):
        raise RedirectError(f"status {response.status_code}{moved}")


def _reader(headers: Any) -> BodyReader:
    """Return a reader of the body after these headers, which then describe the decoded body."""
    told = headers.get("Content-Length", "")
    if told.isdecimal():
        _counted(int(told[:20]))
    return BodyReader(headers.pop("Content-Encoding", None))


def _counted(size: int) -> int:
    if size > MAX_BODY:
        raise BodyError(f"a body over {MAX_BODY} bytes")
    return size

"""Applies the limits of `workbench_kit.lms` to DSPy's native client (LiteLLM uses httpx, which that module limits).

`dspy.LM` builds its transport itself and takes none, so the method that chooses the decoder of a body is replaced, once
per process. Bodies outside `bounded_bodies()` are decoded as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from workbench_dspy_seam.clients import http_parser
from workbench_kit.lms.bounded_http import BodyError, BodyReader, RedirectError, bodies_are_bounded, note_headers
from workbench_kit.wire import describe_redirect


@cache
def bound_native_client() -> None:
    """Replace the decoder. Raises PluginError for a version of DSPy that reads answers differently."""
    head, broken = http_parser()
    unbounded, framed = head.body_decoder, head._framing_decoder

    def body_decoder(self: Any, request_method: str) -> Any:
        if not bodies_are_bounded():
            return unbounded(self, request_method)
        note_headers(self.headers)
        if moved := describe_redirect(self.status, {"location": ", ".join(self.headers_all("location"))}, ""):
            error = RedirectError(f"status {self.status}{moved}")
            raise broken(str(error)) from error
        framing = framed(self, request_method)
        if framing.complete:
            return framing
        try:
            return _Decoder(framing, ", ".join(self.headers_all("content-encoding")), broken)
        except BodyError as error:
            raise broken(str(error)) from error

    head.body_decoder = body_decoder


class _Decoder:
    """A body decoder of DSPy's native client, wrapping the one that knows where the body ends. broken: the client's
    error, which closes the connection."""

    def __init__(self, framing: Any, coding: str, broken: type[Exception]):
        self._framing, self._reader, self._broken = framing, BodyReader(coding), broken

    @property
    def complete(self) -> bool:
        return self._framing.complete

    @property
    def leftover(self) -> bytes:
        return self._framing.leftover

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            for framed in self._framing.feed(data):
                yield from self._reader.feed(framed)
            if self._framing.complete:
                self._reader.finish()
        except BodyError as error:
            raise self._broken(str(error)) from error

    def eof(self) -> None:
        self._framing.eof()
        try:
            self._reader.finish()
        except BodyError as error:
            raise self._broken(str(error)) from error

    def drain(self) -> bytes:
        """Return nothing: all data was returned before."""
        return b""

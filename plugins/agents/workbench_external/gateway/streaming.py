"""An answer as a stream of events: another server's bytes, pieces in the form of the client's API, or as a whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from multidict import CIMultiDict

from workbench.base.type_guards import is_dict
from workbench.lm import Piece
from workbench_external.gateway.access import Admitted
from workbench_external.gateway.asks import Refused
from workbench_external.gateway.endpoints import Endpoint
from workbench_external.gateway.passed import Passed, headers_below
from workbench_external.gateway.writing import Asked, Event
from workbench_kit.wire import Forwarded, body_of as loaded

if TYPE_CHECKING:
    from aiohttp import web

#: Seconds between two pings in a stream.
PING_SECONDS = 15.0
_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"}

encode = json.JSONEncoder(separators=(",", ":"), default=dict).encode


class Stream:
    """A streamed answer on its way to an agent. told: logs an error, and returns the refusal for the agent.

    Pieces pass as they arrive. Before any other answer that takes long, comments are sent, so that the agent does not
    give up (Google's clients take a comment for an answer, so they wait). An answer that is ready at once, or fails,
    has its own status, from which the agent knows whether to retry.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        who: Admitted,
        endpoint: Endpoint,
        asked: Asked,
        told: Callable[[Exception, Admitted], Refused],
    ):
        self._request, self._who, self._asked, self._told_of = request, who, asked, told
        self._dialect, self._pieces = endpoint.dialect, asked.pieces
        self._work: asyncio.Future[Any] = asyncio.ensure_future(endpoint.answer(who, asked))
        self._work.add_done_callback(lambda _: asked.pieces.wake())
        self._waited = False  # an agent has waited PING_SECONDS

    async def send(self) -> web.StreamResponse:
        """Send the answer. Raises its errors if it has not begun."""
        from aiohttp import web

        work, pieces = self._work, self._pieces
        try:
            await self._first_sign()
            while not (self._dialect.comments or work.done() or pieces.source.begun):
                await self._first_sign()
            if pieces.source.begun:
                return await self._relay()
            if not work.done():
                return await self._send_slowly()
            answer = await work
            return (
                as_it_came(answer)
                if isinstance(answer, Passed)
                else web.Response(body=self._written(answer), headers=_HEADERS)
            )
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    async def _first_sign(self) -> None:
        """Wait until the answer has begun or ended, at most PING_SECONDS."""
        self._waited = False
        clock = asyncio.get_running_loop().call_later(PING_SECONDS, self._end_wait)
        try:
            while not (self._work.done() or self._pieces.source.begun or self._waited):
                await self._pieces.wait()
        finally:
            clock.cancel()

    def _end_wait(self) -> None:
        self._waited = True
        self._pieces.wake()

    async def _relay(self, response: web.StreamResponse | None = None) -> web.StreamResponse:
        """Pass on the pieces of an answer until it ends. If it breaks off, so does the agent's connection."""
        from aiohttp import web

        work, pieces = self._work, self._pieces
        try:
            if response is None:
                response = web.StreamResponse(headers={**_HEADERS, **pieces.source.headers})
                await response.prepare(self._request)
            place = 0
            while True:
                ended = work.done()
                more, place = pieces.after(place)
                if ended:
                    break
                if more:
                    await response.write(self._said(more))
                else:
                    await pieces.wait()
            rest = self._said(more)
            if not pieces.source.whole:
                try:
                    answer = await work
                    if not isinstance(answer, Passed):  # the end of an answer in pieces
                        rest += self._written(answer)
                except Exception as error:
                    await response.write(rest + self._failure(error))
                    hang_up(self._request)  # no end of the stream: it broke
                    return response
            elif isinstance(error := work.exception(), Exception):  # the agent has read it as the server wrote it
                self._told_of(error, self._who)
            await response.write_eof(rest)  # in one packet with the end
        except (asyncio.CancelledError, ConnectionError):
            self._break_off()  # too late for a status
        except Exception as error:  # a fault of ours: the agent must not wait for more
            self._told_of(error, self._who)
            self._break_off()
        return response if response is not None else web.Response(status=499)

    async def _send_slowly(self) -> web.StreamResponse:
        from aiohttp import web

        work, pieces = self._work, self._pieces
        response = web.StreamResponse(headers=_HEADERS)
        await response.prepare(self._request)
        try:
            while not work.done() and not pieces.source.begun:
                await response.write(b": ping\n\n")
                await self._first_sign()
            if pieces.source.begun:
                return await self._relay(response)
            try:
                answer = await work
                written = answer.raw if isinstance(answer, Passed) else self._written(answer)
            except Exception as error:
                written = self._failure(error)
                if not written:
                    hang_up(self._request)
                    return response
            await response.write(written)
            await response.write_eof()
        except asyncio.CancelledError:
            self._break_off()
        return response

    def _said(self, parts: Sequence[bytes | Piece]) -> bytes:
        asked = self._asked
        return b"".join(p if isinstance(p, bytes) else self._written(asked.writer.add(p)) for p in parts)

    def _failure(self, error: Exception) -> bytes:
        """Return the event for an error. Empty if the server's connection broke: the client's breaks, too."""
        told = self._told_of(error, self._who)
        if told.broke:
            return b""
        event = loaded(told.passed[2]) if told.passed is not None else None
        usual = self._dialect.fail_stream(told)  # in Responses, a failure differs from an error body
        return self._written([event if is_dict(event) and event.keys() >= usual.keys() else usual])

    def _written(self, events: Iterable[Event]) -> bytes:
        """Encode events for sending. A text is sent as it is, e.g. `[DONE]`."""
        lines: list[str] = []
        for event in events:
            if self._dialect.named and is_dict(event):
                lines.append(f"event: {event['type']}\n")
            lines.append(f"data: {event if isinstance(event, str) else encode(event)}\n\n")
        return "".join(lines).encode()

    def _break_off(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


def hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """Close the connection after the written bytes. Returns a placeholder response."""
    from aiohttp import web

    if request.transport is not None:
        request.transport.close()
    return web.Response(status=499)


def as_it_came(answer: Passed) -> web.Response:
    """Return the answer of another server in one piece."""
    return _answer_classes()[0](body=answer.raw, status=answer.status, headers=answer.headers)


async def send_beginning(request: web.BaseRequest, answer: Passed) -> web.StreamResponse:
    """Send the part of an answer that arrived, and close the connection."""
    response = _answer_classes()[1](status=answer.status, headers=answer.headers)
    await response.prepare(request)
    await response.write(answer.raw)
    return hang_up(request)


async def send_forwarded(request: web.BaseRequest, answer: Forwarded, own: str) -> web.StreamResponse:
    """Pass an answer on as it arrives. own: the gateway's URL for its client. Raises the error that breaks it off."""
    headers = CIMultiDict(headers_below(answer, own))
    response = _answer_classes()[1](status=answer.status, headers=headers)
    try:
        await response.prepare(request)
        async for part in answer.chunks:
            await response.write(part)
        await response.write_eof()
    finally:
        answer.close()
    return response


@cache
def _answer_classes() -> tuple[type[web.Response], type[web.StreamResponse]]:
    """Return (whole, streamed): response classes that add no content type to an answer without one."""
    from aiohttp import web

    class Untyped(web.StreamResponse):
        async def _prepare_headers(self) -> None:
            typed = "Content-Type" in self.headers
            await super()._prepare_headers()
            if not typed:
                self.headers.popall("Content-Type", None)

    class Whole(Untyped, web.Response):
        """A response in one piece."""

    return Whole, Untyped

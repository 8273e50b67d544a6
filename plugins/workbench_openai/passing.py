"""Requests that pass as their clients wrote them, to a server that speaks the same API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from workbench.errors import LMError
from workbench.lm import API_PATHS, MOST_FORMS, NO_SUCH_PATH, Form, Pieces, Request, Response, redact_answer
from workbench_openai import wire
from workbench_openai.server import Server


class Passing:
    """Sends such requests of one model. apis: those that the server is asked in.

    That it lacks one after all is remembered here alone: the key of a request follows from `apis`, and is the same in a
    run that is resumed. extra: fields of ours, where the client has none of that name. form: what is sent otherwise, by
    the settings; what the server refuses is remembered, for each API by itself.
    """

    def __init__(
        self,
        server: Server,
        apis: set[str],
        price: wire.Price,
        extra: Mapping[str, Any] | None = None,
        form: Form | None = None,
        token_ids: bool = False,
    ):
        self.apis = apis
        self._server, self._price, self._extra = server, price, extra or {}
        self._forms = dict.fromkeys(apis, form or Form())
        self._lacking, self._token_ids = set[str](), token_ids

    async def complete(self, request: Request, otherwise: Callable[[Request], Any]) -> Response:
        """The answer. The request is sent as it is, and again without what the server refuses.

        otherwise: answers it in the form of chat completions, where the server turns out not to have its API. Raises
        LMError.
        """
        native = request.native
        assert native is not None
        if native.api not in self.apis or native.api in self._lacking:
            return await otherwise(request.converted())
        url, streams = self._server.url(API_PATHS[native.api]), native.streams
        body: dict[str, Any] = {**self._extra, **native.body, "model": self._server.model}
        if self._token_ids and request.logprobs:
            body.setdefault("return_token_ids", True)
        billed = replace(request, extra=self._extra)
        reader = Relayed(request.pieces) if streams and request.pieces is not None else None
        form = self._forms[native.api]
        sent: Any = form.shape(body)
        for left in reversed(range(MOST_FORMS)):

            def read(
                status: int, headers: Mapping[str, str], raw: bytes, sent: Any = sent, last: bool = not left
            ) -> Any:
                nonlocal form, body
                if status == 200:
                    clients = self._server.told_headers(headers)
                    found = wire.parse_native(raw, clients, billed, self._price, headers)
                    return redact_answer(found, self._server.sent_key, self._server.headers)
                if native.api != "chat" and status in NO_SUCH_PATH:
                    return None
                form = self._heed(form, status, raw, request)
                again, before = form.shape(body), _encoded(sent)  # as bytes: to Python, true is 1
                if status in (400, 422) and _encoded(again) == before and (back := native.restored(body)) is not None:
                    body = {**body, **back}
                    again = form.shape(body)
                if last or _encoded(again) == before:
                    raise wire.error_for(status, headers, raw)
                return again

            found = await self._server.send(url, _encoded(sent), read, native.headers, streams=streams, reader=reader)
            if found is None:
                response = await otherwise(request.converted())
                self._lacking.add(native.api)  # a model that is not known has 404, too, and would there
                return response
            if isinstance(found, Response):
                return found
            sent = found
        raise AssertionError("the last form is answered, or raises")

    def _heed(self, form: Form, status: int, raw: bytes, request: Request) -> Form:
        assert request.native is not None
        other, alone = form.heed(status, wire.body_of(raw), request)
        if not alone and self._forms[request.native.api] is form:  # else another call has met the same refusal
            self._forms[request.native.api] = other
        return other

    async def forward(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of the server's answer on a path that asks no model. Raises LMError.

        A path behind that of an API is asked of this model; a moderation names one of its own kind.
        """
        if body is not None and "model" in body and path.startswith(tuple(f"{own}/" for own in API_PATHS.values())):
            body = {**body, "model": self._server.model}
        sent = None if body is None else _encoded(body)
        return await self._server.fetch(method, path, sent, headers)


class Relayed:
    """Passes events on as they are."""

    def __init__(self, pieces: Pieces):
        self._pieces, self.begin = pieces, pieces.begin

    def add(self, events: bytes) -> None:
        self._pieces.add(events)

    def end(self) -> None:
        self._pieces.source.end()


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return wire.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise LMError("bad_request", f"the request cannot be written as JSON: {error}") from None

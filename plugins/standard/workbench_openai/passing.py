"""Pass requests unchanged to a server that speaks the API of their clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from yarl import URL

from workbench.base.type_guards import is_dict
from workbench.errors import LMError
from workbench.lm import API_PATHS, NotCarried, Pieces, Request, Response
from workbench_kit.wire import MAX_FORMS, NO_SUCH_PATH, Form, Forwarded, redact_answer
from workbench_openai import wire
from workbench_openai.server import Server

#: Words of a server that has no such path, as opposed to no such model, file or answer.
_OF_PATHS = re.compile(
    r"(?i)^(\S*error:)?\W*(404\W*)?((page|file|resource|route|path|endpoint) )?not found[\W\d]*$"
    r"|url|route|endpoint|/v1/"
)


class Passing:
    """Sends such requests for one model. apis: those that the server is asked in.

    A missing API is remembered in this object only: the key of a request depends on `apis`, and stays the same in a
    resumed run. extra: our fields, unless the client has set them. form: shape of other requests, by the settings.
    Refused fields are remembered for each API separately.
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
        self._lacking, self._answered, self._token_ids = set[str](), set[str](), token_ids

    async def complete(self, request: Request, otherwise: Callable[[Request], Any]) -> Response:
        """Return the answer. The request is sent unchanged, and again without refused fields.

        otherwise: answers it as chat completions if the server turns out not to have its API. Raises LMError.
        """
        native = request.native
        assert native is not None
        if native.api not in self.apis or native.api in self._lacking:
            return await otherwise(request.converted())
        url = self._server.url(API_PATHS[native.api])
        body: dict[str, Any] = {**self._extra, **native.body, "model": self._server.model}
        if self._token_ids and request.logprobs:
            body.setdefault("return_token_ids", True)
        billed = replace(request, extra=self._extra)
        form = self._forms[native.api]
        sent = form.shape(body)
        for left in reversed(range(MAX_FORMS)):

            def heed(status: int, raw: bytes, sent: Any = sent, last: bool = not left) -> Any:
                nonlocal form, body
                form = self._heed(form, status, raw, request, body)
                again, before = form.shape(body), _encoded(sent)  # compare bytes: to Python, true is 1
                if status in (400, 422) and _encoded(again) == before and (back := native.restored(body)):
                    body = {**body, **back}
                    again = form.shape(body)
                return None if last or _encoded(again) == before else again

            try:
                found = await send_native(self._server, url, _encoded(sent), billed, self._price, heed)
            except LMError as error:
                if not self._may_lack(native.api, error):
                    raise
                return await self._ask_otherwise(request, otherwise, error)
            if isinstance(found, Response):
                self._answered.add(native.api)
                return found
            sent = found
        raise AssertionError("the last form is answered, or raises")

    def _may_lack(self, api: str, error: LMError) -> bool:
        """Return True if the server may lack an API, rather than something that the request names, e.g. its model."""
        if api == "chat" or api in self._answered or error.passed is None or error.status not in NO_SUCH_PATH:
            return False
        found = wire.body_of(error.passed[2])
        told = found.get("error") or found.get("message") if is_dict(found) else None
        words = told.get("message") if is_dict(told) else told
        return not isinstance(words, str) or _OF_PATHS.search(words) is not None

    async def _ask_otherwise(self, request: Request, otherwise: Callable[[Request], Any], refused: LMError) -> Response:
        """Return the answer as chat completions. Raise `refused` if the server lacks that path, too."""
        assert request.native is not None
        try:
            response = await otherwise(request.converted())
        except LMError as error:
            raise (refused if isinstance(error, NotCarried) or error.status in NO_SUCH_PATH else error) from None
        self._lacking.add(request.native.api)
        return response

    def _heed(self, form: Form, status: int, raw: bytes, request: Request, body: Mapping[str, Any]) -> Form:
        """Return the form without the refused field, if it may be left out.

        A client that named this very model gets the refusal of its own fields.
        """
        assert request.native is not None
        other, alone = form.heed(status, wire.body_of(raw), request)
        if request.native.body.get("model") == self._server.model:
            before, after = form.shape(body), other.shape(body)
            ours = {*request.native.ours, *(self._extra.keys() - request.native.body.keys())}
            if any(before.get(name) != after.get(name) for name in {*before, *after} - ours):
                return form
        if not alone and self._forms[request.native.api] is form:  # else another call got the same refusal
            self._forms[request.native.api] = other
        return other

    async def forward(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Forwarded:
        """Return the server's answer on any other path. Raise LMError.

        body: bytes, whole or streamed, pass unchanged. A path below that of an API goes to this model.
        """
        if is_dict(body):
            if "model" in body and path.startswith(tuple(f"{own}/" for own in API_PATHS.values())):
                body = {**body, "model": self._server.model}
            body = _encoded(body)
        return await self._server.fetch(method, path, body, headers)


async def send_native(
    server: Server,
    url: URL,
    body: bytes,
    request: Request,
    price: wire.Price,
    heed: Callable[[int, bytes], Any] = lambda status, raw: None,
) -> Any:
    """Send a request with `native`. Returns the answer, or the result of `heed` on a refusal, unless that is None.

    Raises LMError with the server's answer.
    """
    native = request.native
    assert native is not None

    def read(status: int, headers: Mapping[str, str], raw: bytes) -> Any:
        try:
            if status == 200:
                found = wire.parse_native(raw, server.told_headers(headers), request, price, headers)
                return redact_answer(found, server.sent_key, server.headers)
            if (other := heed(status, raw)) is None:
                raise wire.error_for(status, headers, raw)
        except LMError as error:
            server.let_pass(error, status, headers, raw)
            raise
        return other

    reader = _Relayed(request.pieces) if native.streams and request.pieces is not None else None
    headers = {**native.sent, **native.headers}
    return await server.send(url, body, read, headers, streams=native.streams, reader=reader, passes=True)


class _Relayed:
    """Passes events on unchanged."""

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

"""A thin client for OpenAI-compatible chat servers: one attempt per call, typed outcomes, little overhead."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from yarl import URL

from workbench.errors import LMError, SpecError
from workbench.lm import API_PATHS, Request, Response, estimate_tokens, is_loopback
from workbench_kit.lms.prices import ModelPrice
from workbench_kit.wire import (
    MAX_FORMS,
    ChunkReader,
    Form,
    Forwarded,
    Rates,
    check_extra,
    headers_key,
    parse_events,
    redact_answer,
)
from workbench_openai import wire
from workbench_openai.passing import Passing
from workbench_openai.prices import usd_per_token
from workbench_openai.server import Server, base_url

HOSTED = "https://api.openai.com/v1"
DEFAULT_CONCURRENCY = 16


def openai(model: str, settings: Any) -> OpenAIChat:
    """Create `openai/...`: api.openai.com, or OPENAI_BASE_URL, or the api_base of the settings."""
    base = os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE") or HOSTED
    return OpenAIChat(model, settings, base, "OPENAI_API_KEY")


def hosted_vllm(model: str, settings: Any) -> OpenAIChat:
    """Create `hosted_vllm/...`: a vLLM server. Requests for log-probabilities also ask for token ids."""
    base = os.environ.get("HOSTED_VLLM_API_BASE") or "http://127.0.0.1:8000/v1"
    return OpenAIChat(model, settings, base, "HOSTED_VLLM_API_KEY", token_ids=True)


def ollama(model: str, settings: Any) -> OpenAIChat:
    """Create `ollama/...`: an Ollama server."""
    return OpenAIChat(model, settings, os.environ.get("OLLAMA_API_BASE") or "http://127.0.0.1:11434/v1")


def local(model: str, settings: Any) -> OpenAIChat:
    """Create `local/...`: any server on this machine; by default at llama.cpp's port."""
    return OpenAIChat(model, settings, "http://127.0.0.1:8080/v1")


class OpenAIChat:
    """An LM behind POST {base}/chat/completions. Use it from asyncio; close it with `aclose`."""

    def __init__(
        self,
        model: str,
        settings: Any,
        default_base: str,
        key_variable: str | None = None,
        token_ids: bool = False,
    ):
        """Create a client. default_base replaces a missing api_base, key_variable a missing api_key_env.

        Raises SpecError for an invalid address or settings.

        Raises SpecError for an address or settings that cannot be used.
        """
        self.model, self._token_ids = model, token_ids
        base = base_url(settings.api_base or default_base)
        self._hosted, loopback = base.origin() == URL(HOSTED).origin(), is_loopback(str(base))
        variable = settings.api_key_env
        usual = base.user is None and (not settings.api_base or self._hosted or loopback)
        if variable is None and usual:
            # A foreign workflow file must not be able to send the user's key to its author's server.
            variable = key_variable
        key_needed = bool(settings.api_key_env) or (self._hosted and bool(key_variable))
        self.key_variable = variable if key_needed else None
        extra = dict(settings.extra or {})
        if refused := {"stream", "n"} & extra.keys():
            raise SpecError(f"'{sorted(refused)[0]}' cannot be set for {settings.model}", path=("extra",))
        check_extra(extra, settings.model)
        written = extra.pop("headers", None) or {}
        headers = {k: os.path.expandvars(str(v)) for k, v in written.items()}
        if base.user is not None and (settings.api_key_env or "authorization" in map(str.lower, headers)):
            hint = "Leave one of them out: a server takes one Authorization."
            raise SpecError("there are a name and password in api_base, and a key beside it", hint=hint)
        self._extra = extra
        self._form = Form.of(model, settings)  # and without fields that it refused before
        self._price = ModelPrice(settings.price, loopback, self._find_rates, extra)
        self.reads_images = True
        self.assumed_free = self._price.assumed_free
        self.concurrency = settings.concurrency or DEFAULT_CONCURRENCY
        self._server = Server(
            model, base, headers, variable, key_needed=key_needed, concurrency=max(self.concurrency, 1)
        )
        self._url = self._server.url(API_PATHS["chat"])
        # Our settings use the names of chat completions. If there are any, that API serves the other requests, too.
        others = set() if extra or settings.omit or settings.rename else {"responses", "completions"}
        as_set = Form(frozenset(settings.omit), dict(settings.rename))
        self._passing = Passing(self._server, {"chat", *others}, self._price.of, extra, as_set, token_ids)
        self.identity = f"{model}@{base.with_user(None).with_query(None)}"
        if settings.omit:  # without the setting, the answer is a different one
            extra = {**extra, "omit": sorted(settings.omit)}
        for name, given in (("headers", written), ("query", base.query)):
            if chosen := headers_key(given):
                extra = {**extra, name: chosen}
        if extra:
            self.identity += json.dumps(extra, sort_keys=True, default=str)

    async def complete(self, request: Request) -> Response:
        """Send a POST, and another one without refused fields. Raises LMError with kind, status and start of the
        answer."""
        if request.native is not None:
            return await self._passing.complete(request, self.complete)
        extra = self._extra
        if self._token_ids and request.logprobs:
            extra = {"return_token_ids": True, **extra}
        if request.pieces is not None and request.pieces.wanted:  # a client of another API is sent the pieces
            extra = {**extra, "stream": True, "stream_options": {"include_usage": True}}
        found: Response | Form = self._form
        for left in reversed(range(MAX_FORMS)):
            if isinstance(found, Form):
                found = await self._asked(request, extra, found, last=not left)
        assert isinstance(found, Response), "the last form is answered, or raises"
        return found

    async def _asked(self, request: Request, extra: Mapping[str, Any], form: Form, *, last: bool) -> Response | Form:
        """Return the answer, or the form that avoids a refusal, if there is one and this was not the last attempt."""
        try:
            body = wire.build_body(self.model, request, extra, form)
        except (TypeError, ValueError, RecursionError) as error:
            raise LMError("bad_request", f"the request cannot be written as JSON: {error}") from None

        chunks = _Chunks(request) if "stream" in extra else None
        billed = replace(request, extra={**extra, **request.extra})

        def read(status: int, headers: Mapping[str, str], raw: bytes) -> Response | Form:
            if status == 200:
                found = wire.parse_body(raw, billed, self._price.of, headers)
                found = found if chunks is None else chunks.check(found)
                return redact_answer(found, self._server.sent_key, self._server.headers)
            other, alone = form.heed(status, wire.body_of(raw), request)
            if last or wire.build_body(self.model, request, extra, other) == body:
                return wire.refusal_or_error(status, headers, raw, request)
            if not alone and self._form is form:  # else another call got the same refusal
                self._form = other
            return other

        return await self._server.send(self._url, body, read, streams=chunks is not None, reader=chunks)

    @property
    def apis(self) -> set[str]:
        return self._passing.apis

    async def forward(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Forwarded:
        """Return the server's answer on any other path. Raise LMError."""
        return await self._passing.forward(method, path, body, headers)

    def ready(self) -> None:
        """Raise LMError if the server needs a key and there is none."""
        self._server.check_key()

    def listening(self) -> None:
        """Raise LMError if nothing listens at an address of this machine. Sends nothing."""
        self._server.check_listening()

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """Send POST {base}/embeddings. Returns a vector for each text, and the tokens read. Raises LMError."""
        body = wire.encode({"model": self.model, "input": list(texts), **self._extra})

        def read(status: int, headers: Mapping[str, str], raw: bytes) -> tuple[list[list[float]], int]:
            if status != 200:
                raise wire.error_for(status, headers, raw)
            vectors, tokens = wire.parse_vectors(raw, len(texts))
            return vectors, tokens or estimate_tokens(tuple({"content": text} for text in texts))

        return await self._server.send(self._server.url("embeddings"), body, read)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the price by the settings; else 0.0 on loopback, a table for api.openai.com; else None."""
        return self._price.usual(prompt_tokens, completion_tokens)

    def max_usd(self, request: Request, prompt_tokens: int) -> float | None:
        """Return the worst-case cost of a request in US dollars; None if unknown."""
        return self._price.most(request, prompt_tokens)

    def _find_rates(self) -> Rates | None:
        return usd_per_token(self.model) if self._hosted else None

    async def aclose(self) -> None:
        """Close the connections of every event loop that used this LM."""
        await self._server.aclose()


class _Chunks:
    """Adds the chunks of a stream to the pieces of a request. A chunk that cannot be read means that there is no
    answer."""

    def __init__(self, request: Request):
        self._reader = ChunkReader(request)
        self._error: LMError | None = None

    def begin(self, headers: Mapping[str, str]) -> None:
        """Ignore the headers, which belong to another API than the client's."""

    def add(self, events: bytes) -> None:
        try:
            for chunk in () if self._error else parse_events(events) or ():
                self._reader.add(chunk)
        except LMError as error:
            self._error = error

    def end(self) -> None:
        if self._error is None:
            self._reader.end()

    def check(self, response: Response) -> Response:
        """Return the answer with the ids sent to its client. Raise LMError if the client was not sent all of it."""
        if self._error is not None:
            raise self._error
        return self._reader.with_ids(response)

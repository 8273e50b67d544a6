"""A thin client for OpenAI-compatible chat servers: one attempt a call, typed outcomes, little overhead."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from workbench.errors import LMError, SpecError
from workbench.lm import (
    MAX_BODY,
    MOST_FORMS,
    Form,
    Request,
    Response,
    check_extra,
    estimate_tokens,
    is_loopback,
    parse_price,
    redact,
    redact_answer,
)
from workbench_openai import wire
from workbench_openai.prices import usd_per_token

Answer = TypeVar("Answer")

HOSTED = "https://api.openai.com/v1"
DEFAULT_CONCURRENCY = 16
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30)  # the ledger holds the deadline of a call


def openai(model: str, settings: Any) -> OpenAIChat:
    """`openai/...`: api.openai.com, or OPENAI_BASE_URL, or the api_base of the settings."""
    base = os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE") or HOSTED
    return OpenAIChat(model, settings, base, "OPENAI_API_KEY")


def hosted_vllm(model: str, settings: Any) -> OpenAIChat:
    """`hosted_vllm/...`: a vLLM server; also asks for token ids where log-probabilities are asked for."""
    base = os.environ.get("HOSTED_VLLM_API_BASE") or "http://127.0.0.1:8000/v1"
    return OpenAIChat(model, settings, base, "HOSTED_VLLM_API_KEY", token_ids=True)


def ollama(model: str, settings: Any) -> OpenAIChat:
    """`ollama/...`: an Ollama server."""
    return OpenAIChat(model, settings, os.environ.get("OLLAMA_API_BASE") or "http://127.0.0.1:11434/v1")


def local(model: str, settings: Any) -> OpenAIChat:
    """`local/...`: any server on this machine; by default where llama.cpp's listens."""
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
        """default_base serves where the settings lack api_base, key_variable where they lack api_key_env.

        Raises SpecError for an address or settings that cannot be used.
        """
        self.model, self._token_ids = model, token_ids
        base = _base_url(settings.api_base or default_base)
        self._base, self._url = base, (base / "chat/completions").with_query(base.query)
        self._hosted, loopback = base.origin() == URL(HOSTED).origin(), is_loopback(str(base))
        self._key_variable = settings.api_key_env
        usual = base.user is None and (not settings.api_base or self._hosted or loopback)
        if self._key_variable is None and usual:
            # A workflow file from elsewhere must not be able to send the user's key to its author's server.
            self._key_variable = key_variable
        self._key_needed = bool(settings.api_key_env) or (self._hosted and bool(key_variable))
        self.key_variable = self._key_variable if self._key_needed else None
        extra = dict(settings.extra or {})
        if refused := {"stream", "n"} & extra.keys():
            raise SpecError(f"'{sorted(refused)[0]}' cannot be set for {settings.model}", path=("extra",))
        check_extra(extra, settings.model)
        self._headers = {k: os.path.expandvars(str(v)) for k, v in (extra.pop("headers", None) or {}).items()}
        if base.user is not None and (settings.api_key_env or "authorization" in map(str.lower, self._headers)):
            hint = "Leave one of them out: a server takes one Authorization."
            raise SpecError("there are a name and password in api_base, and a key beside it", hint=hint)
        self._extra = extra
        self._form = Form.of(model, settings)  # and as it refused before
        self._prices = parse_price(settings.price)
        self.reads_images = True
        self.assumed_free = loopback and self._prices is None
        self._proxy = None if loopback else _proxy(base)
        self.concurrency = settings.concurrency or DEFAULT_CONCURRENCY
        self.identity = f"{model}@{base.with_user(None).with_query(None)}"
        if settings.omit:  # an answer without a setting is another one
            extra = {**extra, "omit": sorted(settings.omit)}
        if extra:
            self.identity += json.dumps(extra, sort_keys=True, default=str)
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    async def complete(self, request: Request) -> Response:
        """One POST, and another without what the server refuses. Raises LMError with the kind, the status and the
        start of the server's answer."""
        extra = self._extra
        if self._token_ids and request.logprobs:
            extra = {"return_token_ids": True, **extra}
        found: Response | Form = self._form
        for left in reversed(range(MOST_FORMS)):
            if isinstance(found, Form):
                found = await self._asked(request, extra, found, last=not left)
        assert isinstance(found, Response), "the last form is answered, or raises"
        return found

    async def _asked(self, request: Request, extra: Mapping[str, Any], form: Form, *, last: bool) -> Response | Form:
        """The answer, or the form that heeds a refusal, if there is one and this was not the last that is tried."""
        try:
            body = wire.build_body(self.model, request, extra, form)
        except (TypeError, ValueError, RecursionError) as error:
            raise LMError("bad_request", f"the request cannot be written as JSON: {error}") from None

        def read(status: int, headers: Mapping[str, str], raw: bytes) -> Response | Form:
            if status == 200:
                found = wire.parse_body(raw, request, self._price)
                return redact_answer(found, os.environ.get(self._key_variable or ""), self._headers)
            other, alone = form.heed(status, wire.body_of(raw), request)
            if last or wire.build_body(self.model, request, extra, other) == body:
                return wire.refusal_or_error(status, headers, raw, request)
            if not alone and self._form is form:  # else another call has met the same refusal
                self._form = other
            return other

        return await self._sent(self._url, body, read)

    def ready(self) -> None:
        """Raises LMError without the key that the server needs."""
        self._key()

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """One POST {base}/embeddings: a vector for each text, and the tokens read. Raises LMError."""
        body = json.dumps({"model": self.model, "input": list(texts), **self._extra}).encode()

        def read(status: int, headers: Mapping[str, str], raw: bytes) -> tuple[list[list[float]], int]:
            if status != 200:
                raise wire.error_for(status, headers, raw)
            vectors, tokens = wire.parse_vectors(raw, len(texts))
            return vectors, tokens or estimate_tokens(tuple({"content": text} for text in texts))

        return await self._sent((self._base / "embeddings").with_query(self._base.query), body, read)

    async def _sent(self, url: URL, body: bytes, read: Callable[[int, Mapping[str, str], bytes], Answer]) -> Answer:
        """What `read` makes of (status, headers, body) of one POST. Raises LMError."""
        raw = b""
        try:
            session = self._sessions.get(asyncio.get_running_loop()) or self._open()
            status, headers, raw = await self._post(session, url, body)
            return read(status, headers, raw)
        except LMError as error:
            raise self._explained(error, raw, url) from None
        except aiohttp.ConnectionTimeoutError as error:
            raise LMError("connection", f"{url.host}: {error}") from None  # nothing left
        except TimeoutError as error:
            raise LMError("timeout", f"{url.host}: {error or 'timed out'}") from None
        except (aiohttp.ClientError, OSError) as error:
            text = self._redacted(f"{url.host}: {type(error).__name__}: {error}")
            unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL)
            raise LMError("connection" if unsent else "broken", text[:400]) from None

    async def _post(
        self, session: aiohttp.ClientSession, url: URL, body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        # No redirects: they would turn the POST into a GET, and could carry the key elsewhere.
        async with session.post(url, data=body, allow_redirects=False, proxy=self._proxy) as answer:
            _acknowledge(answer)
            if (answer.content_length or 0) > MAX_BODY:
                answer.close()  # or the rest would be read on the way out
                raise LMError("bad_body", f"a body of {answer.content_length} bytes, over {MAX_BODY}")
            chunks, size = [], 0
            async for chunk in answer.content.iter_any():
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_BODY:
                    answer.close()
                    raise LMError("bad_body", f"a body over {MAX_BODY} bytes")
            return answer.status, answer.headers, chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _open(self) -> aiohttp.ClientSession:
        """The session of the running event loop, with its pool of connections."""
        key = self._key()
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._headers}
        if key:
            headers.setdefault("Authorization", f"Bearer {key}")
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=max(1, self.concurrency), keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=_TIMEOUT,
        )
        self._sessions[asyncio.get_running_loop()] = session
        return session

    def _key(self) -> str | None:
        key = os.environ.get(self._key_variable or "", "").strip()
        if not key and self._key_needed:
            raise LMError("auth", f"{self.model} needs an API key: set the variable {self._key_variable}")
        return key or None

    def _explained(self, error: LMError, raw: bytes, url: URL) -> LMError:
        """The same error with the first 200 characters of the body; redacted first, lest half a key stays. And what to
        do where that is known."""
        text = str(error)
        if raw:
            text += f": {self._redacted(wire.text_of(raw)).strip()[:200]}"
        if error.kind == "auth" and error.status and not self._headers and self._key() is None:
            text += " (no API key was sent; name its variable with api_key_env)"
        if error.status in (404, 405):
            text += self._redacted(f" (asked: {url.with_user(None).with_query(None)}, for {self.model})")
        if error.kind == "unsupported" and any(word in text.lower() for word in ("tool", "function")):
            text += " (for an agent without tools of the server, write native: false)"
        return LMError(error.kind, text, retry_after=error.retry_after, status=error.status)

    def _redacted(self, text: str) -> str:
        return redact(text, self._key_variable, self._headers)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """By the settings' price; else 0.0 on loopback, a table for api.openai.com; else None."""
        return self._price(prompt_tokens, completion_tokens)

    def _price(self, prompt: int, completion: int, cached: int = 0, cache_write: int = 0) -> float | None:
        if self.assumed_free:
            return 0.0
        if self._prices is None and self._hosted:
            self._prices, self._hosted = usd_per_token(self.model), False  # looked up once
        if self._prices is None:
            return None
        return self._prices.price(prompt, completion, cached, cache_write)

    async def aclose(self) -> None:
        """Close the connections of every event loop that used this LM."""
        here = asyncio.get_running_loop()
        while self._sessions:
            loop, session = self._sessions.popitem()
            if loop is here or loop.is_closed():
                await session.close()
            else:
                asyncio.run_coroutine_threadsafe(session.close(), loop)


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


def _base_url(text: str) -> URL:
    try:
        url = URL(text)
        path = url.path.rstrip("/")
        base = path.removesuffix("/chat/completions")
        url = url.with_path(base or "/").with_query(url.query)
    except ValueError:
        url, path, base = URL(), "", ""
    if url.scheme not in ("http", "https") or not url.host:
        raise SpecError(f"'{text}' is not the address of a server", hint="Write, say, http://127.0.0.1:8000/v1.")
    return url if path else url / "v1"  # a full address says that there is no /v1


def _proxy(base: URL) -> str | None:
    # Looked up once: aiohttp's trust_env reads the environment and ~/.netrc for every request.
    return None if proxy_bypass(base.host or "") else getproxies().get(base.scheme)

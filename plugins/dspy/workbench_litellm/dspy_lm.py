"""LMs through `dspy.LM`: its native client for the providers that it serves, LiteLLM for all others."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import dspy

from workbench.base.distribution import pip_install
from workbench.base.type_guards import is_dict
from workbench.errors import LMError, SpecError
from workbench.lm import Request, Response, is_loopback
from workbench_dspy_seam.clients import (
    CLIENT_KEYS,
    errors,
    key_variables,
    lm15,
    native_provider,
)
from workbench_kit.lms.bounded_http import BodyError, RedirectError, body_error, bounded_bodies
from workbench_kit.lms.prices import ModelPrice, find_rates
from workbench_kit.wire import (
    MAX_FORMS,
    ChunkReader,
    Form,
    Rates,
    check_extra,
    headers_key,
    kind_of_status,
    make_body,
    redact,
    redact_answer,
    redactor,
    refused_prompt,
)
from workbench_litellm.addresses import check_addresses
from workbench_litellm.bodies import bound_native_client
from workbench_litellm.installed import check_litellm, has_litellm
from workbench_litellm.reading import error_body, is_refusal, read_answer, read_error, to_request

# LiteLLM has read-only keys, for which Pydantic warns at the first call. Users cannot fix that.
warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier", category=UserWarning)

DEFAULT_CONCURRENCY = 8

# The outcome `length` reports it already; DSPy would log it for every answer that is cut.
logging.getLogger("dspy.clients.lm").addFilter(lambda record: "was truncated" not in record.getMessage())

bound_native_client()

#: LMs in use, each with its event loop. All of them share LiteLLM's connections, so the last one closes them. An LM
#: that was dropped, or whose loop has ended, no longer counts.
_OPEN: WeakKeyDictionary[DSPyLM, asyncio.AbstractEventLoop] = WeakKeyDictionary()

#: Seconds. The ledger ends each attempt at the timeout of its own settings, which may differ for one client.
LONGEST = 86_400.0


class DSPyLM:
    """An LM over `dspy.LM`, with DSPy's cache, retries and history off: the ledger has its own.

    settings.extra: client settings such as `api_version` or `headers`, `engine` (auto, lm15, litellm), and other fields
    to add to every request. Raises SpecError for a model string that DSPy refuses.
    """

    def __init__(self, model: str, settings: Any):
        self.model, self._settings = model, settings
        extra = dict(settings.extra or {})
        check_extra(extra, settings.model)
        check_addresses(model, extra, settings.api_base)
        self._client = {key: extra.pop(key) for key in (*CLIENT_KEYS, "engine") if key in extra}
        self._extra = extra
        self._price = ModelPrice(settings.price, is_loopback(settings.api_base), self._find_rates, settings.extra or {})
        self.reads_images = True
        self.assumed_free = self._price.assumed_free
        self._form = Form.of(model, settings)  # adapted to earlier refusals
        self.concurrency = settings.concurrency or DEFAULT_CONCURRENCY
        shown = ("api_version", "engine", "custom_llm_provider")  # the others can hold secrets
        public = {key: value for key, value in self._client.items() if key in shown}
        if settings.omit:  # without a setting, answers differ
            public["omit"] = sorted(settings.omit)
        if chosen := headers_key({**(self._client.get("headers") or {}), **(self._client.get("extra_headers") or {})}):
            public["headers"] = chosen
        self.identity = f"{model}@{_without_secrets(settings.api_base)}"
        if extra or public:
            self.identity += json.dumps({**extra, **public}, sort_keys=True, default=str)
        self._lm: dspy.LM | None = None
        if "/" not in model:
            hint = "Write PROVIDER/MODEL, such as anthropic/NAME."
            raise SpecError(f"'{model}' names no provider", hint=hint, path=("lm",))
        if not has_litellm() and self._native is None:
            check_litellm(model, f"DSPy's own client does not serve it{' with these settings' * bool(self._client)}")

    def ready(self) -> None:
        """Raise LMError if the key of a provider that takes one key is missing. Providers with other credentials, which
        may not be in the environment, are not checked."""
        if self._key() or self._settings.api_base or self._client.keys() & {"api_key", "headers", "extra_headers"}:
            return
        names = _lacking_by_litellm(self.model) if self._native is None else key_variables(self._native)
        if names and not any(os.environ.get(name, "").strip() for name in names):
            missing = " or ".join(names)
            raise LMError("auth", f"{self.model} needs an API key: set the variable {missing}")

    async def complete(self, request: Request) -> Response:
        """Send the request through DSPy: once, and again without a setting that the server refuses. Raises LMError."""
        lm = self._lm or self._open()
        form, stream = self._form, None
        if request.pieces is not None and request.pieces.wanted:
            stream = _Stream(ChunkReader(request), redactor(self._sent_key(), self._headers))
        for left in reversed(range(MAX_FORMS)):
            body = make_body(self.model, request, self._extra, form)
            try:
                canonical = to_request(body)
                quiet = dspy.context(disable_history=True, usage_tracker=None, send_stream=stream, callbacks=[])
                with bounded_bodies() as headers, quiet:
                    answer = await lm.acall(canonical)
                found = self._response(answer, request, headers)
                return found if stream is None else stream.end(found)
            except LMError as error:
                raise self._named(error) from None
            except (errors.LMError, lm15.LM15Error, ValueError, TypeError, RecursionError) as error:
                if is_refusal(error):
                    return refused_prompt(request)
                status, told = error_body(error)
                other, alone = form.heed(status or 0, told, request)
                renamed = other.rename != form.rename or "max_tokens" in other.omit - form.omit
                # DSPy names the limit of tokens itself.
                begun = stream is not None and stream.begun
                counts = other.counts_logprobs  # DSPy's requests cannot express it
                again = make_body(self.model, request, self._extra, other)
                if renamed or begun or not left or counts or again == body:
                    raise self._mapped(error) from None
                if not alone and self._form is form:  # else another call got the same refusal
                    self._form = other
                form = other
        raise AssertionError("the last form is answered, or raises")

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """Return vectors through LiteLLM, as DSPy has no client of its own for them. Raises LMError."""
        if not has_litellm():
            told = "LiteLLM, through which vectors are had, is not installed"
            raise LMError("unsupported", f"{self.model}: {told}: {pip_install('dspy[litellm]')}")
        import litellm

        litellm.suppress_debug_info = True  # DSPy sets it, too, when it imports LiteLLM
        if self._lm is None:
            self._open()  # LiteLLM's connections are closed with the last of these
        options = {k: v for k, v in (("api_base", self._settings.api_base), ("api_key", self._key())) if v}
        if self._settings.api_base:
            options.setdefault("api_key", "none")  # the usual key must not go to an address from a file
        try:
            with bounded_bodies():
                found: Any = await litellm.aembedding(
                    model=self.model,
                    input=list(texts),
                    num_retries=0,
                    max_retries=_NoRetries(),
                    timeout=LONGEST,
                    **options,
                    **self._extra,
                )
            rows = sorted((dict(row) for row in found.data), key=lambda row: row["index"])
            tokens = int(getattr(found.usage, "prompt_tokens", 0) or 0)
            vectors = [[float(x) for x in row["embedding"]] for row in rows]
            if not all(math.isfinite(x) for vector in vectors for x in vector):
                raise ValueError("a vector with a number that is not finite")
            return vectors, tokens
        except Exception as error:  # LiteLLM raises its own errors, those of the openai package, and JSON errors
            raise self._embedding_error(error) from None

    def _embedding_error(self, error: Exception) -> LMError:
        if refused := body_error(error):
            return self._unread(refused)
        status = getattr(error, "status_code", None)
        known = isinstance(status, int)
        kind = kind_of_status(status) if known else "bad_body"
        kind = _behind(error) or kind if kind in ("server", "bad_body") else kind
        return LMError(kind, self._redacted(f"{self.model}: {error}")[:300], status=status if known else None)

    def _unread(self, refused: BodyError) -> LMError:
        kind = "blocked" if isinstance(refused, RedirectError) else "bad_body"
        return LMError(kind, self._redacted(f"{self.model}: {refused}"))

    @property
    def _headers(self) -> dict[str, Any]:
        """Return the headers of the settings, with the key in them, which is sent as one."""
        named = [self._client.get(name) or {} for name in ("headers", "extra_headers")]
        return {**named[0], **named[1], "api_key": self._client.get("api_key") or ""}

    def _sent_key(self) -> str | None:
        """Return the key that is sent with a request, including the one that DSPy finds itself."""
        provider = self.model.partition("/")[0].upper()
        usual = key_variables(self._native) if self._native else (f"{provider}_API_KEY",)
        names = () if self._settings.api_base else usual
        return self._key() or next((key for name in names if (key := os.environ.get(name, "").strip())), None)

    def _redacted(self, text: str) -> str:
        return redact(text, self._settings.api_key_env, self._headers)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the cost by the settings' price, else 0.0 on loopback, else by a table of hosted models, else None."""
        return self._price.usual(prompt_tokens, completion_tokens)

    def max_usd(self, request: Request, prompt_tokens: int) -> float | None:
        """Return the US dollars of a request in the worst case; None if unknown."""
        return self._price.most(request, prompt_tokens)

    def _find_rates(self) -> Rates | None:
        provider, _, name = self.model.partition("/")
        return None if self._settings.api_base else find_rates(name, provider)

    async def aclose(self) -> None:
        if self._lm is None:
            return
        await self._lm.aclose()
        _OPEN.pop(self, None)
        if all(loop.is_closed() for loop in _OPEN.values()) and "litellm" in sys.modules:
            await sys.modules["litellm"].close_litellm_async_clients()

    def _open(self) -> dspy.LM:
        options = dict(self._client)
        if self._settings.api_base:
            options["api_base"] = self._settings.api_base
        key = self._key()
        if key:
            options["api_key"] = key
        elif self._settings.api_base:
            # Else DSPy would send the provider's usual key to an address that a workflow file names.
            options["api_key"] = "none"
        try:
            options["timeout"] = LONGEST
            self._lm = dspy.LM(self.model, cache=False, num_retries=0, **options)
        except (ValueError, TypeError, errors.LMError) as error:
            raise LMError("bad_request", f"{self.model}: {error}") from None
        _OPEN[self] = asyncio.get_running_loop()
        return self._lm

    def _key(self) -> str | None:
        variable = self._settings.api_key_env
        key = os.environ.get(variable or "", "").strip()
        if variable and not key:
            raise LMError("auth", f"{self.model} needs an API key: set the variable {variable}")
        return key or None

    @cached_property
    def _native(self) -> str | None:
        """The provider as which DSPy's own client serves the model; None if LiteLLM serves it."""
        options = {**self._client, **({"api_base": self._settings.api_base} if self._settings.api_base else {})}
        try:
            return native_provider(dspy.LM(self.model, cache=False, **options))
        except (ValueError, TypeError, errors.LMError, lm15.LM15Error):
            return None  # reported when it is opened

    def _response(self, answer: lm15.Response, request: Request, headers: Mapping[str, str]) -> Response:
        billed = replace(request, extra={**(self._settings.extra or {}), **request.extra})
        found = read_answer(answer, billed, self._price.of, headers)
        return redact_answer(found, self._sent_key(), self._headers)

    def _named(self, error: LMError) -> LMError:
        return LMError(error.kind, f"{self.model}: {error}", retry_after=error.retry_after, status=error.status)

    def _mapped(self, error: Exception) -> LMError:
        if refused := body_error(error):
            return self._unread(refused)
        kind, status = read_error(error), getattr(error, "status", None)
        if kind in ("connection", "server"):
            kind = _behind(error) or kind
        text = self._redacted(str(getattr(error, "message", "") or error).split("\n\n")[0])  # without DSPy's advice
        text = f"{self.model}: " + (f"status {status}: " if status else "") + text[:200]
        retry_after = getattr(error, "retry_after", None)
        if retry_after is not None and not 0 <= retry_after < float("inf"):
            retry_after = None
        return LMError(kind, text, retry_after=retry_after, status=status)


class _Stream:
    """Passes the chunks of an answer from DSPy to the pieces of its request. clean: removes keys from texts."""

    def __init__(self, reader: ChunkReader, clean: Callable[[str], str]):
        self._reader, self._clean, self.begun = reader, clean, False

    async def send(self, chunk: Any) -> None:
        self.begun = True
        plain = chunk if is_dict(chunk) else chunk.model_dump()
        self._reader.add(json.loads(self._clean(json.dumps(plain, default=dict))))

    def end(self, response: Response) -> Response:
        """Return the answer, after its last piece."""
        self._reader.end()
        return self._reader.with_ids(response)


class _NoRetries(int):
    """0. For embeddings LiteLLM takes a plain 0 for an unset value, and sends up to three requests."""

    def __bool__(self) -> bool:
        return True


def _behind(error: BaseException | None) -> str | None:
    """Find the transport's or parser's error behind the errors of DSPy and LiteLLM. Both report a connection or server
    error whether a request never left, its answer broke off, or could not be parsed."""
    kind = None
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return "no_server"
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
            return "bad_body"
        module, name = type(error).__module__, type(error).__name__
        if (module.startswith("httpx") or ".transports." in module) and name != "HTTPStatusError":
            kind = kind or ("connection" if name.startswith("Connect") else "broken")
        error = error.__cause__ or error.__context__
    return kind


@cache
def _lacking_by_litellm(model: str) -> tuple[str, ...]:
    """Return the variable for a provider's key, if it is not set and no other variable would do."""
    import litellm

    litellm.suppress_debug_info = True
    missing = litellm.validate_environment(model=model)["missing_keys"]
    return tuple(missing) if len(missing) == 1 and missing[0].endswith("_API_KEY") else ()


def _without_secrets(base: str | None) -> str:
    if not base:
        return "default"
    parts = urlsplit(base)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()

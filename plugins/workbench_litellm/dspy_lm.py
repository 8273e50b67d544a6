"""LMs through `dspy.LM`: its native client where it has one for the provider, LiteLLM for all others."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

# Both DSPy and LiteLLM fetch their price tables from the net when they are first used; the shipped ones do.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import dspy
from dspy import lm15
from dspy.clients.backend_selection import CLIENT_KEYS
from dspy.clients.costs import estimate_cost
from dspy.clients.model_metadata import model_info, rate
from dspy.utils import exceptions as dspy_errors

from workbench.errors import LMError, SpecError
from workbench.kit.bounded_http import body_error, bounded_bodies
from workbench.lm import (
    MOST_TOKENS,
    Request,
    Response,
    check_extra,
    estimate_tokens,
    is_loopback,
    is_reasoning,
    kind_of_status,
    offset_seed,
    parse_price,
    redact,
    redact_sent,
)
from workbench_litellm.addresses import check_addresses
from workbench_litellm.bodies import bound_native_client

# LiteLLM has read-only keys, of which Pydantic warns at the first call. That is nothing that a user could mend.
warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier", category=UserWarning)

DEFAULT_CONCURRENCY = 8

# The outcome `length` says it already; DSPy would log it for every answer that is cut.
logging.getLogger("dspy.clients.lm").addFilter(lambda record: "was truncated" not in record.getMessage())

bound_native_client()

#: LMs in use, each with its event loop: LiteLLM's connections belong to all of them, so the last one closes them. One
#: that was dropped, or whose loop has ended, uses nothing any more.
_OPEN: WeakKeyDictionary[DSPyLM, asyncio.AbstractEventLoop] = WeakKeyDictionary()

#: Seconds. Each attempt is cut by the ledger at the timeout of its own settings, which may differ for one client.
LONGEST = 86_400.0

#: The first class that fits decides, so subclasses stand before their parents.
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (dspy_errors.ContextWindowExceededError, "too_long"),
    (dspy_errors.LMRateLimitError, "rate_limit"),
    (dspy_errors.LMAuthError, "auth"),
    (dspy_errors.LMBillingError, "auth"),
    (dspy_errors.LMNotConfiguredError, "auth"),
    (dspy_errors.LMTimeoutError, "timeout"),
    (dspy_errors.LMServerError, "server"),
    (dspy_errors.LMTransportError, "connection"),
    (dspy_errors.LMLockTimeoutError, "connection"),
    (dspy_errors.LMUnsupportedFeatureError, "unsupported"),
    (dspy_errors.LMConfigurationError, "bad_request"),
    (dspy_errors.LMInvalidRequestError, "bad_request"),
)


class DSPyLM:
    """An LM over `dspy.LM`, with DSPy's cache, retries and history off: the ledger has its own.

    settings.extra: client settings such as `api_version` or `headers`, `engine` (auto, lm15, litellm), and
    anything else as part of every request. Raises SpecError for a model string that DSPy refuses.
    """

    def __init__(self, model: str, settings: Any):
        self.model, self._settings = model, settings
        extra = dict(settings.extra or {})
        check_extra(extra, settings.model)
        check_addresses(model, extra, settings.api_base)
        self._client = {key: extra.pop(key) for key in (*CLIENT_KEYS, "engine") if key in extra}
        self._extra = extra
        self._prices = parse_price(settings.price)
        self.reads_images = True
        self.assumed_free = self._prices is None and is_loopback(settings.api_base)
        self._reasoning = is_reasoning(model)
        self.concurrency = settings.concurrency or DEFAULT_CONCURRENCY
        shown = ("api_version", "engine", "custom_llm_provider")  # the others can hold secrets
        public = {key: value for key, value in self._client.items() if key in shown}
        self.identity = f"{model}@{_without_secrets(settings.api_base)}"
        if extra or public:
            self.identity += json.dumps({**extra, **public}, sort_keys=True, default=str)
        self._lm: dspy.LM | None = None
        if "/" not in model:
            hint = "Write PROVIDER/MODEL, such as anthropic/NAME."
            raise SpecError(f"'{model}' names no provider", hint=hint, path=("lm",))

    def ready(self) -> None:
        """Raise LMError where the key of a provider that takes one key is missing. Providers with other credentials,
        which may come from elsewhere than the environment, are not asked about."""
        if self._key() or self._settings.api_base or self._client.keys() & {"api_key", "headers", "extra_headers"}:
            return
        if lacking := _lacking_key(self.model):
            raise LMError("auth", f"{self.model} needs an API key: set the variable {lacking}")

    async def complete(self, request: Request) -> Response:
        """Send the request once, through DSPy. Raises LMError."""
        lm = self._lm or self._open()
        try:
            canonical = self._canonical(request)
            quiet = dspy.context(disable_history=True, usage_tracker=None, send_stream=None, callbacks=[])
            with bounded_bodies(), quiet:
                answer = await lm.acall(canonical)
        except (dspy_errors.LMError, lm15.UnsupportedFeatureError, ValueError, TypeError, RecursionError) as error:
            raise self._mapped(error) from None
        return self._response(answer, request, canonical)

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """Vectors through LiteLLM, which DSPy has no client of its own for. Raises LMError."""
        import litellm

        litellm.suppress_debug_info = True  # DSPy sets it, too, where it imports LiteLLM
        if self._lm is None:
            self._open()  # LiteLLM's connections are closed with the last of these
        options = {k: v for k, v in (("api_base", self._settings.api_base), ("api_key", self._key())) if v}
        if self._settings.api_base:
            options.setdefault("api_key", "none")  # the usual key is not for an address that a file names
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
        except Exception as error:  # LiteLLM raises its own kinds, those of the openai package, and what JSON brings
            raise self._embedding_error(error) from None

    def _embedding_error(self, error: Exception) -> LMError:
        if refused := body_error(error):
            return LMError("bad_body", f"{self.model}: {refused}")
        status = getattr(error, "status_code", None)
        known = isinstance(status, int)
        kind = kind_of_status(status) if known else "bad_body"
        kind = _behind(error) or kind if kind in ("server", "bad_body") else kind
        return LMError(kind, self._redacted(f"{self.model}: {error}")[:300], status=status if known else None)

    def _redacted(self, text: str) -> str:
        headers = {**(self._client.get("headers") or {}), **(self._client.get("extra_headers") or {})}
        return redact(text, self._settings.api_key_env, headers)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """By the settings' price, else 0.0 on loopback, else DSPy's table of the hosted models, else None."""
        if self._prices is not None:
            return prompt_tokens * self._prices[0] + completion_tokens * self._prices[1]
        if self._settings.api_base:
            return 0.0 if self.assumed_free else None
        provider, _, name = self.model.partition("/")
        info = model_info(provider, name) or {}
        rates = rate(info, "input_cost_per_token"), rate(info, "output_cost_per_token")
        if rates[0] is None or rates[1] is None:
            return None
        return prompt_tokens * rates[0] + completion_tokens * rates[1]

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
        except (ValueError, TypeError, dspy_errors.LMError) as error:
            raise LMError("bad_request", f"{self.model}: {error}") from None
        _OPEN[self] = asyncio.get_running_loop()
        return self._lm

    def _key(self) -> str | None:
        variable = self._settings.api_key_env
        key = os.environ.get(variable or "", "").strip()
        if variable and not key:
            raise LMError("auth", f"{self.model} needs an API key: set the variable {variable}")
        return key or None

    def _canonical(self, request: Request) -> lm15.Request:
        body: dict[str, Any] = {"model": self.model, "messages": [dict(m) for m in request.messages]}
        body.update(self._extra, **request.extra)
        body["max_tokens"] = request.max_tokens
        if not self._reasoning:
            body["temperature"] = request.temperature
            if request.top_p != 1.0:
                body["top_p"] = request.top_p
            if request.stop:
                body["stop"] = list(request.stop)
            if request.logprobs:
                body["logprobs"] = True
        if request.tools:
            body["tools"] = [dict(tool) for tool in request.tools]
        if request.response_format is not None:
            body["response_format"] = dict(request.response_format)
        offset_seed(body, request)
        return lm15.request_from_openai_chat(body)

    def _response(self, answer: lm15.Response, request: Request, canonical: lm15.Request) -> Response:
        if (answer.provider_data or {}).get("choices") == []:
            raise LMError("bad_body", f"{self.model}: an answer without choices")  # which DSPy takes for an empty text
        parts = answer.message.parts
        text = "".join(part.text for part in parts if isinstance(part, lm15.TextPart))
        text = redact_sent(text, os.environ.get(self._settings.api_key_env or ""), self._client.get("headers"))
        refusal = "".join(part.text for part in parts if isinstance(part, lm15.RefusalPart))
        calls = tuple(
            {"id": part.id, "name": part.name, "arguments": _arguments(part.input)}
            for part in parts
            if isinstance(part, lm15.ToolCallPart)
        )
        for stop in request.stop:
            text = text.split(stop, 1)[0] if stop else text  # for models and servers that take none, or fewer
        prompt, completion = answer.usage.input_tokens, answer.usage.output_tokens
        if max(prompt or 0, completion or 0) > MOST_TOKENS:
            prompt, completion = None, None  # nonsense: estimated like what was not told
        estimated = not prompt or completion is None  # LiteLLM fills in zeros for what it was not told
        if not prompt:
            prompt, completion = estimate_tokens(request.messages), completion or None
        if completion is None:
            completion = -(-len(text + "".join(str(call["arguments"]) for call in calls)) // 3)
        logprobs = tuple(token.logprob for token in answer.logprobs or ()) if request.logprobs else ()
        return Response(
            (text or refusal).encode("utf-8", "replace").decode("utf-8"),  # lone surrogates cannot be stored
            _finish(answer.finish_reason, text, refusal, calls),
            prompt,
            completion,
            usd=self._usd(answer, canonical, prompt, completion),
            tool_calls=calls,
            logprobs=logprobs if logprobs and all(map(math.isfinite, logprobs)) else None,
            estimated=estimated,
        )

    def _usd(self, answer: lm15.Response, canonical: lm15.Request, prompt: int, completion: int) -> float | None:
        told = max(answer.usage.input_tokens or 0, answer.usage.output_tokens or 0)
        if self._settings.price is None and not self._settings.api_base and told <= MOST_TOKENS:
            provider, _, name = self.model.partition("/")
            exact, _ = estimate_cost(answer, provider=provider, requested_model=name, request=canonical)
            if exact is not None:  # knows the prices of cached and reasoning tokens, which `price` does not
                return exact
        return self.price(prompt, completion)

    def _mapped(self, error: Exception) -> LMError:
        if refused := body_error(error):
            return LMError("bad_body", f"{self.model}: {refused}")
        kind = next((kind for cls, kind in _KINDS if isinstance(error, cls)), None)
        status = getattr(error, "status", None)
        if kind is None and isinstance(error, dspy_errors.LMError):
            kind = "bad_body"
            if status is not None and status >= 400:
                kind = "server" if status >= 500 else "bad_request"
        if kind in ("connection", "server"):
            kind = _behind(error) or kind
        text = self._redacted(str(getattr(error, "message", "") or error).split("\n\n")[0])  # without DSPy's advice
        text = f"{self.model}: " + (f"status {status}: " if status else "") + text[:200]
        retry_after = getattr(error, "retry_after", None)
        if retry_after is not None and not 0 <= retry_after < float("inf"):
            retry_after = None
        return LMError(kind or "bad_request", text, retry_after=retry_after, status=status)


class _NoRetries(int):
    """0. For embeddings LiteLLM takes a plain 0 for a setting that was left out, and sends up to three requests."""

    def __bool__(self) -> bool:
        return True


def _behind(error: BaseException | None) -> str | None:
    """What the transport or the reader of the answer says, behind the errors of DSPy and LiteLLM: both call it a
    connection's fault or a server's whether a request never left, its answer broke off, or could not be read."""
    while error is not None:
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
            return "bad_body"
        module, name = type(error).__module__, type(error).__name__
        if (module.startswith("httpx") or ".transports." in module) and name != "HTTPStatusError":
            return "connection" if name.startswith("Connect") else "broken"
        error = error.__cause__ or error.__context__
    return None


def _finish(reason: str, text: str, refusal: str, calls: tuple[Any, ...]) -> str:
    if refusal or reason == "content_filter":
        return "refusal"
    if calls:
        return "tool_calls"
    if reason == "length":
        return "length"
    return "stop" if text.strip() else "empty"


def _arguments(value: Any) -> Any:
    """A dict; the model's own text where it wrote no JSON object, so that an agent can complain."""
    return value["partial_json"] if list(value) == ["partial_json"] else dict(value)


@cache
def _lacking_key(model: str) -> str | None:
    """The variable that the model's provider reads its key from, if that is not set and no other would do."""
    import litellm

    litellm.suppress_debug_info = True
    missing = litellm.validate_environment(model=model)["missing_keys"]
    return missing[0] if len(missing) == 1 and missing[0].endswith("_API_KEY") else None


def _without_secrets(base: str | None) -> str:
    if not base:
        return "default"
    parts = urlsplit(base)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()

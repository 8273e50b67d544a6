"""The chat-completions format: Request -> body, body -> Response, failure -> LMError; no I/O."""

from __future__ import annotations

import json
import math
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from workbench.errors import LMError
from workbench.lm import MAX_TOKENS, Request, Response, cut_at_stops, estimate_tokens, prompt_text, split_reasoning
from workbench_kit.answers import load_loose
from workbench_kit.wire import (
    Billed,
    Form,
    Usage,
    answered_call,
    as_chat,
    body_of,
    estimate_answer,
    is_as_named,
    join_events,
    kind_of_error,
    make_body,
    price_fields,
    read_content,
    read_events,
    read_finish,
    read_thoughts,
    read_usage,
    refused_prompt,
    storable,
    unknown_parts,
)

#: The cost of a call in US dollars by our prices, and the provider's settings in each request.
Price = Callable[[Billed], float | None]

MAX_RETRY_AFTER = 86_400.0
_ABOVE_ONE = 1e-3  # rounding error of the logarithm of a probability of 1

# ensure_ascii also escapes lone surrogates, which would not encode as UTF-8.
_encode = json.JSONEncoder(separators=(",", ":"), default=dict).encode


def build_body(model: str, request: Request, extra: Mapping[str, Any], form: Form) -> bytes:
    """Return the JSON to send (see `make_body`)."""
    return encode(make_body(model, request, extra, form))


def encode(body: Mapping[str, Any]) -> bytes:
    return _encode(body).encode("ascii")


def parse_body(raw: bytes, request: Request, price: Price, headers: Mapping[str, str] | None = None) -> Response:
    """Parse the body of an answer with status 200. Raises LMError (the caller adds an excerpt)."""
    data = read_events(raw) or _loaded(raw)
    return _priced(_read(data, request), data, request, price, headers or {})


def parse_native(
    raw: bytes,
    headers: dict[str, str],
    request: Request,
    price: Price,
    billed_by: Mapping[str, str] | None = None,
) -> Response:
    """Parse the answer to a native request, and keep it as it came, unless its form is not that of its API.

    headers: for the client. billed_by: all headers, which may state the cost. Raises LMError.
    """
    assert request.native is not None
    streamed = join_events(request.native.api, raw)
    data = _loaded(raw) if streamed is None else streamed
    as_named = streamed is not None or is_as_named(request.native, data)
    native = {"raw": text_of(raw), "headers": headers} if as_named else None
    return _priced(_read(as_chat(request.native.api, data), request, native), data, request, price, billed_by or {})


def _priced(
    read: tuple[Response, Usage], data: Mapping[str, Any], request: Request, price: Price, headers: Mapping[str, str]
) -> Response:
    """Return an answer with its price. data: the body in the form of its API."""
    response, usage = read
    if response.usd is not None:
        return response  # a refused prompt costs nothing
    call = answered_call(usage, response.prompt_tokens, response.completion_tokens, request, data)
    return replace(response, **price_fields(price, call, data.get("usage"), headers))


def _loaded(raw: bytes) -> dict[str, Any]:
    try:
        data = json.loads(raw.removeprefix(BOM_UTF8).decode())
    except (ValueError, RecursionError) as error:
        raise LMError("bad_body", f"status 200 with an unreadable body ({error})") from None
    if not isinstance(data, dict):
        raise LMError("bad_body", "status 200 with something else than an object")
    return data


def _read(data: dict[str, Any], request: Request, native: Mapping[str, Any] | None = None) -> tuple[Response, Usage]:
    """Return (the answer without its price, its tokens). native: the answer as it came, if it is passed on."""
    choices = data.get("choices")
    if data.get("error") or not isinstance(choices, list) or not choices:
        kind = kind_of_error(None, data)
        if kind == "refused":
            return replace(refused_prompt(request), native=native), Usage(None, None)
        raise LMError(kind, f"status 200 {'without choices' if kind == 'bad_body' else 'with an error'}", status=200)
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise LMError("bad_body", "status 200 without a message")
    if choice.get("error"):
        kind = kind_of_error(None, {"error": choice["error"]})
        if kind == "refused":
            return replace(refused_prompt(request), native=native), Usage(None, None)
        raise LMError("broken" if kind == "bad_body" else kind, "the server broke off the answer", status=200)
    text, thoughts = read_content(message.get("content"))
    reasoning, text = split_reasoning(text, partial(prompt_text, request))
    text = cut_at_stops(storable(text), request.stop)
    calls = tuple(map(_tool_call, _listed(message.get("tool_calls"))))
    refusal = message.get("refusal")
    if refusal and isinstance(refusal, str):
        text, finish = text or storable(refusal), "refusal"
    else:
        finish = read_finish(choice.get("finish_reason"), text, bool(calls))
    thoughts = "\n".join(filter(None, (storable(read_thoughts(message)), storable(thoughts), storable(reasoning))))
    return _response(text, finish, thoughts, data, choice, calls, request, native)


def parse_vectors(raw: bytes, count: int) -> tuple[list[list[float]], int]:
    """Return (vectors in the order of the texts, tokens read or 0) from a body with status 200. Raise LMError."""
    try:
        data = json.loads(raw.removeprefix(BOM_UTF8).decode())
        rows = sorted(data["data"], key=lambda row: row["index"])
        vectors = [[float(x) for x in row["embedding"]] for row in rows]
    except (ValueError, RecursionError, KeyError, TypeError, OverflowError) as error:
        raise LMError("bad_body", f"status 200 without vectors ({type(error).__name__}: {error})") from None
    if [row["index"] for row in rows] != list(range(count)) or not all(vectors):
        raise LMError("bad_body", f"{len(rows)} vectors for {count} texts")
    if not all(math.isfinite(x) for vector in vectors for x in vector):
        raise LMError("bad_body", "a vector with a number that is not finite")
    usage = data.get("usage")
    return vectors, (_count(usage.get("prompt_tokens")) or 0) if isinstance(usage, dict) else 0


def _response(
    text: str,
    finish: str,
    thoughts: str,
    data: dict,
    choice: dict,
    calls: tuple[dict, ...],
    request: Request,
    native: Mapping[str, Any] | None,
) -> tuple[Response, Usage]:
    said = text + "".join(str(call["arguments"]) for call in calls)
    usage = read_usage(data.get("usage"), bool(said.strip()), MAX_TOKENS)
    prompt, completion = usage.prompt, usage.completion
    estimated = prompt is None or completion is None
    if prompt is None:
        prompt = estimate_tokens(request.messages)
    if completion is None:
        completion = estimate_answer(said)
    response = Response(
        text,
        finish,
        prompt,
        completion,
        tool_calls=calls,
        cached=usage.cached,
        cache_write=usage.written,
        prompt_ids=_ids(data.get("prompt_token_ids")),
        token_ids=_ids(choice.get("token_ids")),
        logprobs=_logprobs(choice.get("logprobs")) if request.logprobs else None,
        estimated=estimated,
        thoughts=thoughts,
        message=unknown_parts(choice["message"]),
        native=native,
    )
    return response, usage


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _listed(calls: Any) -> list[Any]:
    if calls and not isinstance(calls, list):
        raise LMError("bad_body", "status 200 with tool calls that are no list")
    return calls or []


def _tool_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise LMError("bad_body", "status 200 with a malformed tool call")
    return {
        "id": str(call.get("id") or ""),
        "name": function["name"],
        "arguments": _arguments(function.get("arguments")),
    }


def _arguments(value: Any) -> Any:
    """Return a dict for a JSON object, repaired if needed; else the text itself, so that an agent can report it."""
    if isinstance(value, str):
        parsed = load_loose(value or "{}")
        return parsed if isinstance(parsed, dict) else storable(value)
    return value if isinstance(value, dict) else {}


def _logprobs(value: Any) -> tuple[float, ...] | None:
    """Return log-probabilities of the drawn tokens, from one entry each or one list, as in completions (Together)."""
    told = value if isinstance(value, dict) else {}
    content, listed = told.get("content"), told.get("token_logprobs")
    if not isinstance(content, list) and not isinstance(listed, list):
        return None
    try:
        found = tuple(float(item["logprob"]) for item in content) if content else tuple(map(float, listed or ()))
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    return found if all(math.isfinite(x) and x <= _ABOVE_ONE for x in found) else None


def _ids(value: Any) -> tuple[int, ...] | None:
    return tuple(value) if isinstance(value, list) and all(type(i) is int for i in value) else None


def error_for(status: int, headers: Mapping[str, str], raw: bytes) -> LMError:
    """Create the error for a status other than 200."""
    kind = kind_of_error(status, body_of(raw))
    return LMError(kind, f"status {status}", retry_after=retry_after(headers), status=status)


def refusal_or_error(status: int, headers: Mapping[str, str], raw: bytes, request: Request) -> Response:
    """Return the response for a prompt that the provider's filter stopped. Raise LMError for any other error."""
    error = error_for(status, headers, raw)
    if error.kind != "refused":
        raise error
    return refused_prompt(request)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, from Retry-After (seconds or a date) or retry-after-ms; None if unreadable."""
    milliseconds = headers.get("retry-after-ms")
    value = headers.get("Retry-After") if milliseconds is None else milliseconds
    if value is None:
        return None
    try:
        seconds = float(value) / (1 if milliseconds is None else 1000)
    except ValueError:
        try:
            seconds = max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except (ValueError, TypeError, OverflowError):
            return None
    if math.isnan(seconds) or seconds < 0:
        return None
    return min(seconds, MAX_RETRY_AFTER)


def text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")

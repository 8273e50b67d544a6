"""The chat-completions format: Request -> body, body -> Response, failure -> LMError; no I/O."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from workbench.errors import LMError
from workbench.lm import MOST_TOKENS, Request, Response, estimate_tokens, kind_of_status, offset_seed

Price = Callable[[int, int], float | None]

MAX_STOPS = 4  # what the API takes; further stops are applied to the text here
MAX_RETRY_AFTER = 86_400.0
_ABOVE_ONE = 1e-3  # what rounding may make of the logarithm of a probability of 1

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size)|maximum context|exceeds? the (?:available )?context"
    r"|prompt is too long|too many (?:input )?tokens|max_model_len|input is too long",
    re.IGNORECASE,
)

# ensure_ascii also escapes lone surrogates, which would not encode as UTF-8.
_encode = json.JSONEncoder(separators=(",", ":"), default=dict).encode


def build_body(model: str, request: Request, extra: Mapping[str, Any], reasoning: bool) -> bytes:
    """The JSON to send. extra: the provider's settings; the request's own extra wins over them."""
    body: dict[str, Any] = {"model": model, "messages": request.messages, **extra, **request.extra}
    if reasoning:
        body["max_completion_tokens"] = request.max_tokens
    else:
        body["max_tokens"] = request.max_tokens
        body["temperature"] = request.temperature
        if request.top_p != 1.0:
            body["top_p"] = request.top_p
        if request.stop:
            body["stop"] = request.stop[:MAX_STOPS]
        if request.logprobs:
            body["logprobs"] = True
    if request.tools:
        body["tools"] = request.tools
    if request.response_format is not None:
        body["response_format"] = request.response_format
    offset_seed(body, request)
    return _encode(body).encode("ascii")


def parse_body(raw: bytes, request: Request, price: Price) -> Response:
    """The answer in a body that came with status 200. Raises LMError (the caller adds an excerpt)."""
    try:
        data = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise LMError("bad_body", f"status 200 with an unreadable body ({error})") from None
    if not isinstance(data, dict):
        raise LMError("bad_body", "status 200 with something else than an object")
    if data.get("error"):
        raise _error_in_200(data["error"])
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise LMError("bad_body", "status 200 without choices")
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise LMError("bad_body", "status 200 without a message")
    if choice.get("finish_reason") == "error":
        raise LMError("broken", "the server broke off the answer", status=200)
    text = _cut(_text(message.get("content")), request.stop)
    calls = tuple(map(_tool_call, _listed(message.get("tool_calls"))))
    refusal = message.get("refusal")
    reason = choice.get("finish_reason")
    if refusal and isinstance(refusal, str):
        text, finish = text or _clean(refusal), "refusal"
    elif reason == "content_filter":
        finish = "refusal"
    elif calls:
        finish = "tool_calls"
    elif reason == "length":
        finish = "length"
    else:
        finish = "stop" if text.strip() else "empty"
    return _response(text, finish, data, choice, calls, request, price)


def parse_vectors(raw: bytes, count: int) -> tuple[list[list[float]], int]:
    """(vectors in the order of the texts, tokens read or 0) of a body that came with status 200. Raises LMError."""
    try:
        data = json.loads(raw.decode("utf-8-sig"))
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
    text: str, finish: str, data: dict, choice: dict, calls: tuple[dict, ...], request: Request, price: Price
) -> Response:
    usage = data.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    estimated = prompt is None or completion is None
    if prompt is None:
        prompt = estimate_tokens(request.messages)
    if completion is None:
        completion = -(-len(text + "".join(str(call["arguments"]) for call in calls)) // 3)
    return Response(
        text,
        finish,
        prompt,
        completion,
        usd=price(prompt, completion),
        tool_calls=calls,
        prompt_ids=_ids(data.get("prompt_token_ids")),
        token_ids=_ids(choice.get("token_ids")),
        logprobs=_logprobs(choice.get("logprobs")) if request.logprobs else None,
        estimated=estimated,
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, list):  # some servers answer in parts
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        raise LMError("bad_body", "status 200 with content that is not text")
    return _clean(content)


def _clean(text: str) -> str:
    """Lone surrogates (from \\ud800 escapes) cannot be stored as UTF-8, so they become '?'."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _cut(text: str, stops: tuple[str, ...]) -> str:
    """Apply the stops that were not sent, too many or to a model that takes none."""
    for stop in stops:
        if stop:
            text = text.split(stop, 1)[0]
    return text


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
    """A dict where the model wrote a JSON object; else its own text, so that an agent can complain."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value or "{}")
        except (ValueError, RecursionError):
            return _clean(value)
        return parsed if isinstance(parsed, dict) else _clean(value)
    return value if isinstance(value, dict) else {}


def _logprobs(value: Any) -> tuple[float, ...] | None:
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list):
        return None
    try:
        found = tuple(float(item["logprob"]) for item in content)
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    return found if all(math.isfinite(x) and x <= _ABOVE_ONE for x in found) else None


def _ids(value: Any) -> tuple[int, ...] | None:
    return tuple(value) if isinstance(value, list) and all(type(i) is int for i in value) else None


def error_for(status: int, headers: Mapping[str, str], raw: bytes) -> LMError:
    """What an answer with another status than 200 means."""
    text = f"status {status}"
    code = _error_code(raw)
    if status == 429 and code == "insufficient_quota":
        return LMError("auth", text, status=status)  # an empty account: waiting does not help
    if status != 429 and (code == "context_length_exceeded" or _TOO_LONG.search(text_of(raw))):
        return LMError("too_long", text, status=status)
    return LMError(kind_of_status(status), text, retry_after=retry_after(headers), status=status)


def is_filtered(status: int, raw: bytes) -> bool:
    """Whether a 400 means that the provider's content filter stopped the prompt."""
    return status == 400 and _error_code(raw) in ("content_filter", "content_policy_violation")


def _error_code(raw: bytes) -> Any:
    try:
        error = json.loads(raw).get("error")
        return error.get("code") or error.get("type")
    except (ValueError, AttributeError, RecursionError):
        return None


def _error_in_200(error: Any) -> LMError:
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 600:  # gateways pass on the status of the server behind them
        return error_for(code, {}, _encode({"error": error}).encode())
    return LMError("bad_body", "status 200 with an error", status=200)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from Retry-After (seconds or a date) or retry-after-ms; None for nonsense."""
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

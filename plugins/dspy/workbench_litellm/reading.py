"""Reading of DSPy's answers and errors, by the one table of dialects (`workbench_kit.wire.dialects`).

DSPy normalizes both. If the server's own body is available, it is read, as it has more detail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import FailureKind, LMError
from workbench.lm import MAX_TOKENS, Request, Response, cut_at_stops, estimate_tokens
from workbench_dspy_seam.clients import errors, lm15, message_from_json, message_to_json
from workbench_kit.answers import load_loose
from workbench_kit.wire import (
    Billed,
    answered_call,
    dump_arguments,
    estimate_answer,
    kind_of_error,
    price_fields,
    read_content,
    read_finish,
    read_thoughts,
    read_usage,
    storable,
)

#: Key of the complete message, in DSPy's form, in a message that goes back to its provider.
WHOLE = "dspy_message"
#: The first matching class decides, so subclasses come before their parents.
_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (errors.ContextWindowExceededError, FailureKind.TOO_LONG),
    (errors.LMRateLimitError, FailureKind.RATE_LIMIT),
    (errors.LMAuthError, FailureKind.AUTH),
    (errors.LMBillingError, FailureKind.AUTH),
    (errors.LMNotConfiguredError, FailureKind.AUTH),
    (errors.LMTimeoutError, FailureKind.TIMEOUT),
    (errors.LMServerError, FailureKind.SERVER),
    (errors.LMTransportError, FailureKind.CONNECTION),
    (errors.LMLockTimeoutError, FailureKind.CONNECTION),
    (errors.LMUnsupportedFeatureError, FailureKind.UNSUPPORTED),
    (errors.LMConfigurationError, FailureKind.BAD_REQUEST),
    (errors.LMInvalidRequestError, FailureKind.BAD_REQUEST),
    (errors.LMError, FailureKind.BAD_BODY),
)
#: Results of the table for unknown errors. The class of DSPy's error is then more precise.
_VAGUE = (FailureKind.BAD_REQUEST, FailureKind.BAD_BODY)
#: Places of the finish reason in a body: chat completions, Anthropic, Gemini, OpenAI's responses.
_ENDS = (("choices", 0, "finish_reason"), ("stop_reason",), ("candidates", 0, "finishReason"))


def read_answer(
    answer: lm15.Response, request: Request, price: Callable[[Billed], float | None], headers: Mapping[str, str]
) -> Response:
    """Read an answer. price: of a call, by our prices. headers: of the answer, in which a gateway may state its cost.

    Raises LMError if it broke off, or has nothing to read.
    """
    body: Mapping[str, Any] = answer.provider_data or {}
    if body.get("choices") == []:
        raise LMError("bad_body", "an answer without choices")  # DSPy takes it for an empty text
    if failed := _at(body, "choices", 0, "error"):
        kind = kind_of_error(None, {"error": failed})
        raise LMError("broken" if kind == "bad_body" else kind, "the server broke off the answer", status=200)
    parts = answer.message.parts
    text, thoughts = _said(_at(body, "choices", 0, "message"), parts)
    text = cut_at_stops(text, request.stop)  # for models and servers that take none, or fewer
    refusal = "".join(part.text for part in parts if isinstance(part, lm15.RefusalPart))
    calls = tuple(
        {"id": part.id, "name": part.name, "arguments": _arguments(part.input)}
        for part in parts
        if isinstance(part, lm15.ToolCallPart)
    )
    ends = (_at(body, *place) for place in _ENDS)
    word = next((end for end in ends if isinstance(end, str)), answer.finish_reason)
    finish = "refusal" if refusal else read_finish(word, text, bool(calls))
    spoken = text + "".join(str(call["arguments"]) for call in calls)
    usage = read_usage(_usage(answer.usage, body), bool(spoken.strip()), MAX_TOKENS)
    logprobs = tuple(token.logprob for token in answer.logprobs or ()) if request.logprobs else ()
    prompt = estimate_tokens(request.messages) if usage.prompt is None else usage.prompt
    completion = estimate_answer(spoken) if usage.completion is None else usage.completion
    call = answered_call(usage, prompt, completion, request, body)
    return Response(
        storable(text or refusal),
        finish,
        prompt,
        completion,
        tool_calls=calls,
        logprobs=logprobs if logprobs and all(map(math.isfinite, logprobs)) else None,
        estimated=usage.prompt is None or usage.completion is None,
        thoughts=storable(thoughts),
        message=_whole(answer.message, calls) if calls else None,
        cached=usage.cached,
        cache_write=usage.written,
        **price_fields(price, call, body.get("usage"), headers),
    )


def read_error(error: Exception) -> FailureKind:
    """Classify an error of DSPy: by the server's codes and words, then by its class, then by the status."""
    known = next((kind for cls, kind in _KINDS if isinstance(error, cls)), FailureKind.BAD_REQUEST)
    status, body = error_body(error)
    code = body["error"].get("code")
    if status is None and not code:
        return known
    if status is None and _end(code) == "broken":
        return FailureKind.BROKEN
    told = kind_of_error(status, body)
    return known if told in _VAGUE and known != FailureKind.BAD_BODY else told


def is_refusal(error: Exception) -> bool:
    """Return True if a provider's filter stopped the prompt or the answer, which DSPy raises as an error."""
    status, body = error_body(error)
    code = body["error"].get("code")
    if status is None:
        return code == "promptFeedback" or _end(code) == "refusal"
    return kind_of_error(status, body) == FailureKind.REFUSED


def _end(code: Any) -> str:
    """Read an error's code as a finish reason: DSPy puts some of Gemini's there."""
    try:
        return read_finish(code, "said", False)
    except LMError:
        return "broken"


def error_body(error: Exception) -> tuple[int | None, dict[str, Any]]:
    """Return (status, the error in the form of a body) for an error of DSPy's."""
    status, code = getattr(error, "status", None), getattr(error, "provider_code", None)
    status = status if status is not None and status >= 400 else None  # a 200 with an invalid body
    message = str(getattr(error, "message", "") or error)
    return status, {"error": {"message": message, **({"code": code} if code else {})}}


def to_request(body: dict[str, Any]) -> lm15.Request:
    """Convert the body of a chat completion to DSPy's request. Messages from DSPy are sent back complete."""
    wholes = [m.get(WHOLE) for m in body["messages"] if m.get("role") == "assistant"]
    named = [m.get("tool_calls") or () for m in body["messages"] if m.get("role") == "assistant"]
    request = lm15.request_from_openai_chat({**body, "messages": [_known(m) for m in body["messages"]]})
    if not any(wholes):
        return request
    messages, number = list(request.messages), 0
    for place, message in enumerate(messages):
        if message.role == "assistant":
            if wholes[number]:
                messages[place] = _renamed(message_from_json(wholes[number]), named[number])
            number += 1
    return replace(request, messages=tuple(messages))


def _whole(message: lm15.Message, calls: tuple[dict[str, Any], ...]) -> dict[str, Any] | None:
    """Return a message with thoughts, or with data that its provider wants back, as a complete chat message."""
    thought = any(isinstance(part, lm15.ThinkingPart) or part.continuation for part in message.parts)
    if not thought and not message.continuation:
        return None
    text = "".join(part.text for part in message.parts if isinstance(part, lm15.TextPart))
    functions = [{"name": call["name"], "arguments": dump_arguments(call["arguments"])} for call in calls]
    named = zip(calls, functions, strict=True)
    listed = [{"id": call["id"], "type": "function", "function": one} for call, one in named]
    return {"role": "assistant", "content": text, "tool_calls": listed, WHOLE: message_to_json(message)}


def _renamed(message: lm15.Message, calls: Any) -> lm15.Message:
    """Return a message with the call ids that its results use, and with names that the server knows."""
    told = iter([(str(call["id"]), call["function"]["name"]) for call in calls])
    parts = list(message.parts)
    for place, part in enumerate(parts):
        if isinstance(part, lm15.ToolCallPart):
            number, name = next(told, (part.id, part.name))
            parts[place] = replace(part, id=number, name=name)
    return replace(message, parts=tuple(parts))


#: Fields of a message that DSPy reads. It refuses the rest, which comes from other providers.
_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "refusal", "reasoning_content")


def _known(message: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: message[name] for name in _FIELDS if name in message}
    if calls := found.get("tool_calls"):
        found["content"] = message.get("content") or None  # Anthropic refuses an empty text
        found["tool_calls"] = [{k: call[k] for k in ("id", "type", "function") if k in call} for call in calls]
    return found


def _said(message: Any, parts: tuple[Any, ...]) -> tuple[str, str]:
    """Return (text, thoughts) of a chat completion's message, else of DSPy's parts."""
    if is_dict(message):
        text, within = read_content(message.get("content"))
        return text, "\n".join(filter(None, (read_thoughts(message), within)))
    text = "".join(part.text for part in parts if isinstance(part, lm15.TextPart))
    return text, "\n".join(part.text for part in parts if isinstance(part, lm15.ThinkingPart) and part.text)


def _usage(usage: lm15.Usage, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens of an answer in the names of the table. The prompt's count includes cached tokens, which
    Anthropic counts separately."""
    told = body.get("usage")
    apart = is_dict(told) and "cache_read_input_tokens" in told and "prompt_tokens" not in told
    cached, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    prompt = usage.input_tokens
    return {
        "prompt_tokens": prompt + cached + written if apart and prompt is not None else prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }


def _at(value: Any, *path: str | int) -> Any:
    """Return the value at a place in a body; None if there is none."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if is_list(value) and step < len(value) else None
        else:
            value = value.get(step) if is_dict(value) else None
    return value


def _arguments(value: Any) -> Any:
    """Return a dict, repaired if necessary; else the model's own text, so that an agent can complain."""
    if list(value) != ["partial_json"]:
        return dict(value)
    found = load_loose(str(value["partial_json"]))
    return found if is_dict(found) else value["partial_json"]

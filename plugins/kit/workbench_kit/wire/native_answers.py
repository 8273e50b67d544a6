"""Convert answers of other APIs to the form of a chat completion, from which texts, calls and tokens are read.

Sources: platform.openai.com/docs/api-reference (responses, responses-streaming, completions), docs.claude.com
(api/messages, build-with-claude/streaming), ai.google.dev/api/generate-content (GenerateContentResponse).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workbench.base.type_guards import dicts_in, is_dict, is_list
from workbench.errors import LMError
from workbench.lm import Native
from workbench_kit.wire.events import parse_events, read_events

#: Key under which a turn is stored in its own API's form, for a next request that passes unchanged.
TURN = "native_turn"
_RESPONSE_ENDS = {"max_output_tokens": "length", "content_filter": "content_filter"}
_ENDS = ("stop", "length", "tool_calls", "content_filter", "function_call")
_PAUSED = "pause_turn"  # a turn of Anthropic's own tools that the client continues


def as_chat(api: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the body of an answer to that of a chat completion; errors stay in place."""
    return dict(body) if body.get("error") else _READERS[api](body)


def is_as_named(native: Native, body: Mapping[str, Any]) -> bool:
    """Return True if an answer has the form of the API.

    Some servers of chat completions send parts for a text, or other words for an end. No client reads those, so a
    single answer is converted.
    """
    if native.api != "chat" or native.body.get("n") not in (None, 1):
        return True
    forced = native.body.get("tool_choice") not in (None, "auto")  # then the end of a call is `stop`
    for choice in dicts_in(body.get("choices")):
        message = choice.get("message")
        content = message.get("content") if is_dict(message) else None
        called = is_dict(message) and bool(message.get("tool_calls")) and not forced
        if not isinstance(content, str | None) or choice.get("finish_reason") not in _ENDS[called:]:
            return False
    return True


def join_events(api: str, raw: bytes) -> dict[str, Any] | None:
    """Return the body that a streamed answer would have had in one piece; None if it did not come as a stream. Raises
    LMError: `broken` for a stream that ends before its answer, `bad_body` for events of another form."""
    if api == "chat":
        return read_events(raw)
    if (events := _parts_of_array(raw) if api == "gemini" and raw.lstrip()[:1] == b"[" else parse_events(raw)) is None:
        return None
    for event in events:
        if is_dict(event) and (event.get("type") == "error" or event.get("error")):
            return {"error": event.get("error") or event}
    found = _JOINERS[api]([event for event in events if is_dict(event)])
    if found is None:
        raise LMError("broken", "the stream ended before the answer did", status=200)
    return found


def _call(number: Any, name: Any, arguments: Any) -> dict[str, Any]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": number, "type": "function", "function": {"name": name, "arguments": written}}


def _chat(message: dict[str, Any], end: Any, usage: Any, turn: Any, more: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Build a chat completion. turn: in its API's form, kept if it has fields only for its provider: thoughts,
    signatures."""
    thoughts = message.pop("thoughts")
    if thoughts is not None:
        message |= {"reasoning_content": thoughts, TURN: turn}
    if not message["tool_calls"]:
        del message["tool_calls"]
    return {"choices": [{"message": message, "finish_reason": end, **more}], "usage": usage}


def _read_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert calls of custom tools, which take a text, to calls of functions."""
    choices = [*dicts_in(body.get("choices"))]
    message = choices[0].get("message") if choices else None
    if not is_dict(message) or not any("custom" in call for call in dicts_in(message.get("tool_calls"))):
        return dict(body)
    calls = [
        _call(call.get("id"), call["custom"].get("name"), json.dumps({"input": call["custom"].get("input")}))
        if is_dict(call.get("custom"))
        else call
        for call in dicts_in(message["tool_calls"])
    ]
    return {**body, "choices": [{**choices[0], "message": {**message, "tool_calls": calls}}]}


# Responses


def _read_response(body: Mapping[str, Any]) -> dict[str, Any]:
    texts, refusals, calls, thoughts, logprobs = [], [], [], None, []
    for item in dicts_in(body.get("output")):
        match item.get("type"):
            case "message":
                for part in dicts_in(item.get("content")):
                    (refusals if part.get("type") == "refusal" else texts).append(
                        str(part.get("refusal") or part.get("text") or "")
                    )
                    logprobs += dicts_in(part.get("logprobs"))
            case "function_call":
                calls.append(_call(item.get("call_id"), item.get("name"), item.get("arguments")))
            case "custom_tool_call":
                calls.append(_call(item.get("call_id"), item.get("name"), json.dumps({"input": item.get("input")})))
            case "reasoning":
                parts = [*dicts_in(item.get("summary")), *dicts_in(item.get("content"))]
                thoughts = "\n".join(filter(None, (thoughts, *(str(part.get("text") or "") for part in parts))))
            case _:
                pass
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts), "tool_calls": calls}
    message |= {"thoughts": thoughts, **({"refusal": "".join(refusals)} if refusals else {})}
    cut = body.get("incomplete_details")
    end = _RESPONSE_ENDS.get(str(cut.get("reason")), "length") if is_dict(cut) else "tool_calls" if calls else "stop"
    return _chat(message, end, body.get("usage"), body.get("output"), {"logprobs": {"content": logprobs}})


def _join_response(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    ends = ("response.completed", "response.incomplete", "response.failed")
    return next((e["response"] for e in events if e.get("type") in ends and is_dict(e.get("response"))), None)


# Messages


def _read_message(body: Mapping[str, Any]) -> dict[str, Any]:
    texts, calls, thoughts = [], [], None
    for block in dicts_in(body.get("content")):
        match block.get("type"):
            case "text":
                texts.append(str(block.get("text") or ""))
            case "tool_use":
                calls.append(_call(block.get("id"), block.get("name"), block.get("input")))
            case "thinking" | "redacted_thinking":
                thoughts = "\n".join(filter(None, (thoughts, str(block.get("thinking") or ""))))
            case _:
                pass
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts), "tool_calls": calls}
    end = "stop" if body.get("stop_reason") == _PAUSED else body.get("stop_reason")
    return _chat({**message, "thoughts": thoughts}, end, body.get("usage"), body.get("content"))


#: By type of a piece: the field of its block that it extends, and its own.
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("input", "partial_json"),
}


def _join_message(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    message: dict[str, Any] | None = None
    blocks: dict[str, dict[str, Any]] = {}
    pieces: dict[tuple[str, str], list[str]] = {}
    ended = False
    for event in events:
        match event.get("type"):
            case "content_block_delta" if is_dict(delta := event.get("delta")) and str(delta.get("type")) in _DELTAS:
                name, own = _DELTAS[str(delta["type"])]
                pieces.setdefault((str(event.get("index")), name), []).append(str(delta.get(own) or ""))
            case "message_start" if is_dict(event.get("message")):
                message = {**event["message"]}
            case "content_block_start" if is_dict(event.get("content_block")):
                blocks[str(event.get("index"))] = {**event["content_block"]}
            case "message_delta" if message is not None and is_dict(event.get("delta")):
                counts = [one for one in (message.get("usage"), event.get("usage")) if is_dict(one)]
                message |= {**event["delta"], "usage": {name: n for one in counts for name, n in one.items()}}
            case "message_stop":
                ended = True
            case _:
                pass
    for (index, name), texts in pieces.items():
        if index in blocks:
            blocks[index][name] = _loaded("".join(texts)) if name == "input" else "".join(texts)
    return {**message, "content": [*blocks.values()]} if message is not None and ended else None


def _loaded(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text  # as the model wrote it


# Completions


def _read_completion(body: Mapping[str, Any]) -> dict[str, Any]:
    choice = next(dicts_in(body.get("choices")), None)
    if choice is None:
        return dict(body)
    message = {"role": "assistant", "content": str(choice.get("text") or ""), "tool_calls": [], "thoughts": None}
    return _chat(message, choice.get("finish_reason"), body.get("usage"), None)


def _join_completion(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    choices = [choice for event in events for choice in dicts_in(event.get("choices")) if not choice.get("index")]
    ends = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    usage = next((event["usage"] for event in reversed(events) if event.get("usage")), None)
    text = "".join(str(choice.get("text") or "") for choice in choices)
    return {"choices": [{"text": text, "finish_reason": ends[-1]}], "usage": usage} if ends else None


# Gemini's generateContent

#: Ends that stop a part of an answer, or all of it; others are left to the client.
_GEMINI_ENDS = ("STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE")


def _read_gemini(body: Mapping[str, Any]) -> dict[str, Any]:
    candidate = next(dicts_in(body.get("candidates")), None)
    if candidate is None and body.keys().isdisjoint(("promptFeedback", "usageMetadata")):
        return dict(body)
    candidate = candidate or {"finishReason": "SAFETY" if _is_blocked(body) else "STOP"}
    content = candidate.get("content")
    parts = [*dicts_in(content.get("parts"))] if is_dict(content) else []
    told = [(part.get("thought") is True, part["text"]) for part in parts if isinstance(part.get("text"), str)]
    thoughts = "".join(text for thought, text in told if thought)
    calls = [
        _call(c.get("id"), c.get("name"), c.get("args") or {}) for p in parts if is_dict(c := p.get("functionCall"))
    ]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text for thought, text in told if not thought)}
    # Signatures must be returned with calls (ai.google.dev/gemini-api/docs/thought-signatures); parts may hold images.
    message |= {"tool_calls": calls, "thoughts": thoughts if calls else None}
    message |= {} if calls or not thoughts else {"reasoning_content": thoughts}
    end = candidate.get("finishReason")
    return _chat(message, end if end in _GEMINI_ENDS else "STOP", _gemini_usage(body.get("usageMetadata")), parts)


def _is_blocked(body: Mapping[str, Any]) -> bool:
    feedback = body.get("promptFeedback")
    return is_dict(feedback) and bool(feedback.get("blockReason"))


def _gemini_usage(told: Any) -> dict[str, Any] | None:
    """Return the token counts under the names of chat completions. Thoughts are billed like the answer and counted
    separately. Results of the server's own tools are billed like the prompt."""
    if not is_dict(told):
        return None
    count = {name: n for name, n in told.items() if type(n) is int}
    found: dict[str, Any] = {
        "prompt_tokens_details": {"cached_tokens": count.get("cachedContentTokenCount", 0)},
        "completion_tokens_details": {"reasoning_tokens": count.get("thoughtsTokenCount", 0)},
    }
    if "promptTokenCount" in count:
        found["prompt_tokens"] = count["promptTokenCount"] + count.get("toolUsePromptTokenCount", 0)
    if not count.keys().isdisjoint(("candidatesTokenCount", "thoughtsTokenCount")):
        found["completion_tokens"] = count.get("candidatesTokenCount", 0) + count.get("thoughtsTokenCount", 0)
    return found


def _join_gemini(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    candidate: dict[str, Any] = {}
    parts: list[dict[str, Any]] = []
    for event in events:
        found |= {name: value for name, value in event.items() if name != "candidates"}
        for one in dicts_in(event.get("candidates")):
            if not one.get("index"):  # of several answers, only the first
                candidate |= {name: value for name, value in one.items() if name != "content"}
                parts += dicts_in(one["content"].get("parts")) if is_dict(one.get("content")) else ()
    if _is_blocked(found) and not candidate:
        return found
    whole = {**candidate, "content": {"role": "model", "parts": parts}}
    return {**found, "candidates": [whole]} if candidate.get("finishReason") else None


def _parts_of_array(raw: bytes) -> list[Any] | None:
    """Return the parts of an answer that came as an array; None for another body."""
    try:
        return parts if is_list(parts := json.loads(raw)) else None
    except (ValueError, RecursionError):
        return None


_READERS = {
    "chat": _read_chat,
    "responses": _read_response,
    "messages": _read_message,
    "completions": _read_completion,
    "gemini": _read_gemini,
}
_JOINERS = {
    "responses": _join_response,
    "messages": _join_message,
    "completions": _join_completion,
    "gemini": _join_gemini,
}

"""OpenAI's Responses: Response -> body or events, Refused -> the end of a stream; no I/O.

A stream has the answer in a few pieces: it is known as a whole before the first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.gateway import fields as f
from workbench.gateway.asks import Ask, Refused
from workbench.gateway.chat import token_logprobs
from workbench.lm import Message, Response

#: Fields of the request that the answer repeats, with what they are if they were not set.
_REPEATED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def write_response(ask: Ask, response: Response, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an answer."""
    cut = {"length": "max_output_tokens"}.get(response.finish)
    if response.finish == "refusal" and not response.text:
        cut = "content_filter"
    return {
        **_head(ask, body),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "output": _output(ask, response, "incomplete" if cut else "completed"),
        "usage": _usage(response),
    }


def as_message(ask: Ask, response: Response) -> Message:
    """The answer as a message of a conversation that goes on."""
    message: dict[str, Any] = {"role": "assistant", "content": response.text or None}
    calls = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in f.calls_with_ids(response, ask.messages)
    ]
    return {**message, "tool_calls": calls} if calls else message


def _head(ask: Ask, body: Mapping[str, Any]) -> dict[str, Any]:
    head = {"id": f.make_id("resp_"), "object": "response", "created_at": int(time.time()), "model": ask.model}
    repeated = {name: usual if body.get(name) is None else body[name] for name, usual in _REPEATED.items()}
    return {**head, "background": False, "error": None, **repeated}


def _output(ask: Ask, response: Response, status: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    calls = f.calls_with_ids(response, ask.messages)
    if response.text or not calls:
        part: dict[str, Any] = {"type": "output_text", "text": response.text, "annotations": []}
        part["logprobs"] = _logprobs(ask, response)
        if response.finish == "refusal" and response.text:
            part = {"type": "refusal", "refusal": response.text}
        message = {"id": f.make_id("msg_"), "type": "message", "status": status, "role": "assistant"}
        items.append({**message, "content": [part]})
    for call in calls:
        begun = {"id": f.make_id("fc_"), "type": "function_call", "status": status, "call_id": call["id"]}
        items.append({**begun, "name": call["name"], "arguments": call["arguments"]})
    return items


def _logprobs(ask: Ask, response: Response) -> list[dict[str, Any]]:
    return [{**token, "bytes": []} for token in token_logprobs(ask, response)]


def _usage(response: Response) -> dict[str, Any]:
    read, written = response.prompt_tokens, response.completion_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": response.cached, "cache_write_tokens": response.cache_write},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def stream_response(whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """An answer's body as events, in the order of the API."""
    for number, event in enumerate(_events(whole)):
        yield {**event, "sequence_number": number}


def _events(whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**whole, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for place, item in enumerate(whole["output"]):
        at = {"output_index": place}
        if item["type"] == "message":
            yield {"type": "response.output_item.added", **at, "item": {**item, "status": "in_progress", "content": []}}
            yield from _part_events(item, {"item_id": item["id"], **at, "content_index": 0})
        else:
            empty = {**item, "status": "in_progress", "arguments": ""}
            yield {"type": "response.output_item.added", **at, "item": empty}
            kind, where = "response.function_call_arguments", {"item_id": item["id"], **at}
            for piece in f.pieces_of(item["arguments"]):
                yield {"type": f"{kind}.delta", **where, "delta": piece}
            yield {"type": f"{kind}.done", **where, "name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.output_item.done", **at, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _part_events(item: Mapping[str, Any], where: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    part = item["content"][0]
    refused = part["type"] == "refusal"
    name, kind = ("refusal", "response.refusal") if refused else ("text", "response.output_text")
    told = [] if refused else part["logprobs"]
    empty = {**part, name: ""} if refused else {**part, name: "", "logprobs": []}
    yield {"type": "response.content_part.added", **where, "part": empty}
    for n, piece in enumerate(f.pieces_of(part[name])):
        extra = {} if refused else {"logprobs": [] if n else told}
        yield {"type": f"{kind}.delta", **where, "delta": piece, **extra}
    yield {"type": f"{kind}.done", **where, name: part[name], **({} if refused else {"logprobs": told})}
    yield {"type": "response.content_part.done", **where, "part": part}


def write_failure(refused: Refused) -> dict[str, Any]:
    """The event that ends a stream without an answer."""
    return {
        "type": "error",
        "code": refused.kind,
        "message": refused.message,
        "param": refused.field,
        "sequence_number": 0,
    }

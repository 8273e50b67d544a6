"""OpenAI's Responses: the pieces of an answer -> events, or a body; Refused -> the end of a stream; no I/O.

The model's thoughts are a reasoning item if the request asks for a summary of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import Message, Piece, Response
from workbench_external.gateway import fields as f
from workbench_external.gateway.asks import Ask, Refused
from workbench_external.gateway.writing import Event, token_logprobs

#: Fields of the request that the answer repeats, with their defaults.
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
#: By kind of piece: the type of its item, the prefix of its ids, and the name of its text in events.
_ITEMS: Mapping[str, tuple[str, str, str]] = {
    "thoughts": ("reasoning", "rs_", "response.reasoning_summary_text"),
    "text": ("message", "msg_", "response.output_text"),
    "refusal": ("message", "msg_", "response.refusal"),
    "call": ("function_call", "fc_", "response.function_call_arguments"),
}
#: By kind: the name of an item's part in events, its type, and the field with its text.
_PARTS: Mapping[str, tuple[str, str, str]] = {
    "thoughts": ("response.reasoning_summary_part", "summary_text", "text"),
    "text": ("response.content_part", "output_text", "text"),
    "refusal": ("response.content_part", "refusal", "refusal"),
}


class ResponseWriter:
    """Writes events, or the whole response."""

    def __init__(self, body: Mapping[str, Any]):
        head = {"id": f.make_id("resp_"), "object": "response", "created_at": int(time.time())}
        repeated = {name: usual if body.get(name) is None else body[name] for name, usual in _REPEATED.items()}
        more = {"model": str(body.get("model")), "background": False, "error": None, **repeated}
        self._head = {**head, **more, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        included, reasoning = body.get("include"), body.get("reasoning")
        self._logprobs = is_list(included) and "message.output_text.logprobs" in included
        self._thinks = is_dict(reasoning) and bool(reasoning.get("summary") or reasoning.get("generate_summary"))
        self._items: list[dict[str, Any]] = []
        self._kind, self._texts = "", list[str]()  # of the open item
        self._expected: Response | None = None
        self._number = 0
        self._whole: dict[str, Any] = {}

    def expect(self, responses: Sequence[Response]) -> None:
        """Note the answer, to write log-probabilities of tokens with the text."""
        (self._expected,) = responses

    def add(self, piece: Piece, sample: int = 0) -> Iterator[Event]:
        """Write the events of a piece."""
        for event in self._add(piece):
            yield self._numbered(event)

    def end(self, responses: Sequence[Response]) -> Iterator[Event]:
        """Write the events of the end."""
        for event in self._end(*responses):
            yield self._numbered(event)

    def body(self) -> dict[str, Any]:
        """Return the response."""
        return self._whole

    def _numbered(self, event: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        return {**event, "sequence_number": self._number - 1}

    def _add(self, piece: Piece) -> Iterator[dict[str, Any]]:
        if not self._number:
            yield {"type": "response.created", "response": self._head}
            yield {"type": "response.in_progress", "response": self._head}
        if piece.kind == "thoughts" and not self._thinks:
            return
        if piece.id or piece.kind != self._kind:
            yield from self._close("completed")
            yield from self._open(piece)
        if not piece.text:
            return
        self._texts.append(piece.text)
        told = {"logprobs": [] if len(self._texts) > 1 else self._told()} if piece.kind == "text" else {}
        yield {"type": f"{_ITEMS[piece.kind][2]}.delta", **self._where(), "delta": piece.text, **told}

    def _end(self, response: Response) -> Iterator[dict[str, Any]]:
        self._expected = response
        if not any(item["type"] != "reasoning" for item in self._items):
            yield from self._add(Piece("text", ""))
        cut = {"length": "max_output_tokens"}.get(response.finish)
        if response.finish == "refusal" and self._kind != "refusal":
            cut = "content_filter"
        status = "incomplete" if cut else "completed"
        yield from self._close(status)
        details = {"reason": cut} if cut else None
        end = {"status": status, "incomplete_details": details, "output": self._items, "usage": _usage(response)}
        self._whole = {**self._head, **end}
        yield {"type": f"response.{status}", "response": self._whole}

    # Items

    def _open(self, piece: Piece) -> Iterator[dict[str, Any]]:
        self._kind, self._texts = piece.kind, []
        type_, prefix, _ = _ITEMS[piece.kind]
        item: dict[str, Any] = {"id": f.make_id(prefix), "type": type_, "status": "in_progress"}
        match type_:
            case "reasoning":
                item |= {"summary": []}
            case "message":
                item |= {"role": "assistant", "content": []}
            case _:
                item |= {"call_id": piece.id, "name": piece.name, "arguments": ""}
        self._items.append(item)
        yield {"type": "response.output_item.added", "output_index": len(self._items) - 1, "item": item}
        if piece.kind in _PARTS:
            yield {"type": f"{_PARTS[piece.kind][0]}.added", **self._where(), "part": self._part("", [])}

    def _close(self, status: str) -> Iterator[dict[str, Any]]:
        if not self._kind:
            return
        text, kind, where = "".join(self._texts), self._kind, self._where()
        item, done = {**self._items[-1], "status": status}, f"{_ITEMS[kind][2]}.done"
        if kind == "call":
            item["arguments"] = text
            yield {"type": done, **where, "name": item["name"], "arguments": text}
        else:
            part = self._part(text, self._told())
            item["summary" if kind == "thoughts" else "content"] = [part]
            name, _, field = _PARTS[kind]
            yield {"type": done, **where, **{key: part[key] for key in (field, "logprobs") if key in part}}
            yield {"type": f"{name}.done", **where, "part": part}
        self._items[-1], self._kind = item, ""
        yield {"type": "response.output_item.done", "output_index": len(self._items) - 1, "item": item}

    def _part(self, text: str, told: list[Any]) -> dict[str, Any]:
        _, type_, name = _PARTS[self._kind]
        part = {"type": type_, name: text}
        return {**part, "annotations": [], "logprobs": told} if self._kind == "text" else part

    def _where(self) -> dict[str, Any]:
        place = {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}
        if self._kind == "call":
            return place
        return {**place, "summary_index" if self._kind == "thoughts" else "content_index": 0}

    def _told(self) -> list[dict[str, Any]]:
        return [{**token, "bytes": []} for token in token_logprobs(self._logprobs, self._expected)]


def as_message(ask: Ask, response: Response) -> Message:
    """Return the answer as a message of a conversation that may continue."""
    message: dict[str, Any] = {"role": "assistant", "content": response.text or None}
    calls = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in f.calls_with_ids(response, ask.messages)
    ]
    return {**message, "tool_calls": calls} if calls else message


def _usage(response: Response) -> dict[str, Any]:
    read, written = response.prompt_tokens, response.completion_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": response.cached, "cache_write_tokens": response.cache_write},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def write_failure(refused: Refused) -> dict[str, Any]:
    """Return the event that ends a stream without an answer."""
    return {
        "type": "error",
        "code": refused.kind,
        "message": refused.message,
        "param": refused.field,
        "sequence_number": 0,
    }

"""Anthropic's Messages: the pieces of an answer -> events, or a body; no I/O.

The number of prompt tokens is known at the end of a stream, and sent there (`message_delta`), unless the whole answer
is known. Thoughts are not sent: a request for them (`thinking`) cannot be translated to another API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.lm import Piece, Response
from workbench_external.gateway import fields as f
from workbench_external.gateway.writing import Event
from workbench_kit.wire import dump_arguments

_STOPS = {"length": "max_tokens", "tool_calls": "tool_use", "refusal": "refusal"}
_DELTAS = {"text": ("text_delta", "text"), "tool_use": ("input_json_delta", "partial_json")}


class MessageWriter:
    """Writes events, or the whole message."""

    def __init__(self, body: Mapping[str, Any]):
        self._message = {
            "id": f.make_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": str(body.get("model")),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        self._blocks: list[tuple[dict[str, Any], list[str]]] = []
        self._expected = Response("")
        self._begun = self._open = False

    def expect(self, responses: Sequence[Response]) -> None:
        """Write the number of prompt tokens at the beginning."""
        (self._expected,) = responses

    def add(self, piece: Piece, sample: int = 0) -> Iterator[Event]:
        """Write the events of a piece."""
        yield from self._begin()
        if piece.kind == "thoughts":
            return
        kind = "tool_use" if piece.kind == "call" else "text"
        if piece.id or not self._open or self._blocks[-1][0]["type"] != kind:
            yield from self._close()
            block = {"type": "text", "text": "", "citations": None}
            if kind == "tool_use":
                block = {"type": kind, "id": piece.id, "name": piece.name, "input": {}}
            self._blocks.append((block, []))
            self._open = True
            yield {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": block}
        if piece.text:
            self._blocks[-1][1].append(piece.text)
            delta, name = _DELTAS[kind]
            place = len(self._blocks) - 1
            yield {"type": "content_block_delta", "index": place, "delta": {"type": delta, name: piece.text}}

    def end(self, responses: Sequence[Response]) -> Iterator[Event]:
        """Write the events of the end."""
        (response,) = responses
        yield from self._begin()
        yield from self._close()
        delta = {"stop_reason": _STOPS.get(response.finish, "end_turn"), "stop_sequence": None}
        usage = _usage(response, response.completion_tokens)
        self._message |= {"content": [*map(_whole, self._blocks)], **delta, "usage": usage}
        yield {"type": "message_delta", "delta": delta, "usage": usage}
        yield {"type": "message_stop"}

    def body(self) -> dict[str, Any]:
        """Return the message."""
        return self._message

    def _begin(self) -> Iterator[Event]:
        if not self._begun:
            self._begun = True
            yield {"type": "message_start", "message": {**self._message, "usage": _usage(self._expected, 1)}}
            yield {"type": "ping"}

    def _close(self) -> Iterator[Event]:
        if self._open:
            self._open = False
            yield {"type": "content_block_stop", "index": len(self._blocks) - 1}


def _whole(block: tuple[dict[str, Any], list[str]]) -> dict[str, Any]:
    empty, texts = block
    text = "".join(texts)
    if empty["type"] == "text":
        return {**empty, "text": text}
    return {**empty, "input": json.loads(dump_arguments(text or "{}"))}


def _usage(response: Response, written: int) -> dict[str, int]:
    cached = {"cache_creation_input_tokens": response.cache_write, "cache_read_input_tokens": response.cached}
    fresh = max(0, response.prompt_tokens - response.cached - response.cache_write)  # counted separately in this API
    return {"input_tokens": fresh, **cached, "output_tokens": written}

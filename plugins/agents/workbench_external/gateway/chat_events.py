"""OpenAI's Chat Completions: the pieces of an answer -> events, or a body; no I/O."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.lm import Piece, Response
from workbench_external.gateway import fields as f
from workbench_external.gateway.writing import Event, token_logprobs

_FINISH = {"length": "length", "tool_calls": "tool_calls"}
_FIELDS = {"thoughts": "reasoning_content", "text": "content", "refusal": "refusal"}


class ChatWriter:
    """Writes chunks, or the whole completion."""

    def __init__(self, body: Mapping[str, Any]):
        options = body.get("stream_options")
        self._counted = isinstance(options, dict) and bool(options.get("include_usage"))
        self._logprobs = body.get("logprobs") is True
        self._head = {"id": f.make_id("chatcmpl-"), "created": int(time.time()), "model": str(body.get("model"))}
        self._messages: dict[int, dict[str, Any]] = {}
        self._ends: list[dict[str, Any]] = []
        self._usage: dict[str, Any] = {}

    def expect(self, responses: Sequence[Response]) -> None:
        """Do nothing: the beginning does not depend on the answers."""

    def add(self, piece: Piece, sample: int = 0) -> Iterator[Event]:
        """Write the chunks of a piece."""
        yield from self._begin(sample, piece.kind)
        message = self._messages[sample]
        if piece.kind != "call":
            name = _FIELDS[piece.kind]
            message[name] = (message.get(name) or "") + piece.text
            yield self._chunk(sample, {name: piece.text})
            return
        calls: list[dict[str, Any]] = message.setdefault("tool_calls", [])
        if piece.place == len(calls):
            function = {"name": piece.name, "arguments": ""}
            calls.append({"id": piece.id, "type": "function", "function": function})
            yield self._chunk(sample, {"tool_calls": [{"index": piece.place, **calls[-1], "function": {**function}}]})
        if piece.text:
            calls[piece.place]["function"]["arguments"] += piece.text
            grown = {"index": piece.place, "function": {"arguments": piece.text}}
            yield self._chunk(sample, {"tool_calls": [grown]})

    def end(self, responses: Sequence[Response]) -> Iterator[Event]:
        """Write the chunks with the ends, the usage if it was requested, and `[DONE]`."""
        for sample, response in enumerate(responses):
            yield from self._begin(sample, "refusal" if response.finish == "refusal" else "text")
            told = [{**token, "bytes": None} for token in token_logprobs(self._logprobs, response)]
            end = {
                "finish_reason": _finish(response, self._messages[sample]),
                "logprobs": {"content": told, "refusal": None} if told else None,
            }
            self._ends.append(end)
            yield self._chunk(sample, {}, end)
        self._usage = _usage(responses)
        if self._counted:
            yield {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": self._usage}
        yield "[DONE]"

    def body(self) -> dict[str, Any]:
        """Return the completion."""
        messages = (self._messages[sample] for sample in range(len(self._ends)))
        choices = [
            {"index": n, "message": {"role": "assistant", **message, "annotations": []}, **end}
            for n, (message, end) in enumerate(zip(messages, self._ends, strict=True))
        ]
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": self._usage}

    def _begin(self, sample: int, kind: str) -> Iterator[Event]:
        if sample in self._messages:
            return
        content = None if kind in ("call", "refusal") else ""
        self._messages[sample] = {"content": content, "refusal": None}
        yield self._chunk(sample, {"role": "assistant", "content": content, "refusal": None})

    def _chunk(self, sample: int, delta: Mapping[str, Any], end: Mapping[str, Any] | None = None) -> dict[str, Any]:
        choice = {"index": sample, "delta": delta, "logprobs": None, "finish_reason": None, **(end or {})}
        usage = {"usage": None} if self._counted else {}
        return {**self._head, "object": "chat.completion.chunk", **usage, "choices": [choice]}


def _finish(response: Response, message: Mapping[str, Any]) -> str:
    if response.finish == "refusal" and not message["refusal"]:
        return "content_filter"
    return _FINISH.get(response.finish, "stop")


def _usage(responses: Sequence[Response]) -> dict[str, Any]:
    prompt = max((r.prompt_tokens for r in responses), default=0)  # read once for all answers
    answer, cached = sum(r.completion_tokens for r in responses), max((r.cached for r in responses), default=0)
    found = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    return {**found, "prompt_tokens_details": {"cached_tokens": cached}}

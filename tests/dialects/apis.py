"""Chat completions, the form of requests and answers that most servers speak."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.dialects.dialect import Asked, Count, Dialect, Json, Said
from tests.dialects.rules import check_form


class Chat:
    path = "/chat/completions"

    def read(self, asked: Asked) -> Json:
        check_form(asked)
        return asked.body

    def write(self, dialect: Dialect, said: Said, asked: Asked, sign: Callable[[str, str], None]) -> Json:
        message: Json = {"role": "assistant", "content": said.text or (None if said.calls else "")}
        if said.thoughts and dialect.thoughts is not None:
            dialect.thoughts(message, said.thoughts)
        if said.calls:
            message["tool_calls"] = [
                {
                    "id": dialect.call_id(len(asked.messages) * 10 + number),
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for number, (name, arguments) in enumerate(said.calls)
            ]
        choice: Json = {"index": 0, "message": message, "finish_reason": dialect.ends.get(said.end, _ENDS[said.end])}
        if dialect.logprobs and asked.body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}]}
        body: Json = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": asked.body["model"],
            "choices": [choice],
            "usage": dialect.usage(Count()),
        }
        if dialect.change is not None:
            dialect.change(body, said)
        for call in message.get("tool_calls") or ():
            sign(call["id"], json.dumps(call.get("extra_content") or message.get("reasoning_details")))
        return body


_ENDS = {"stop": "stop", "length": "length", "tool_calls": "tool_calls", "refusal": "content_filter"}
CHAT = Chat()

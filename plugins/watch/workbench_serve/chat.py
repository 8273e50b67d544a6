"""A workflow in the form of OpenAI's chat completions: one text in, one text out.

Source: OpenAI's API reference, chat completions. Departures: a conversation has one message, since a workflow reads one
text; sampling settings are ignored, since the workflow has its own.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from workbench.inference import Prediction
from workbench_serve.errors import RequestError

#: Fields that would change the form of the answer, with the values that do not.
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "logprobs": (False,),
    "audio": (),
    "response_format": ({"type": "text"},),
}


def text_of(asked: Any, model: str) -> str:
    """Return the text in a request. Raises RequestError for a field that matters and would be ignored."""
    if not isinstance(asked, dict):
        raise _bad("Send one JSON object.", None)
    if asked.get("model") != model:
        raise RequestError(404, "model_not_found", f"The only model here is '{model}'.", field="model")
    for name, harmless in _REFUSED.items():
        if asked.get(name) is not None and asked[name] not in harmless:
            raise _bad(f"A workflow does not take `{name}`.", name)
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise _bad("`messages` must be a list with one message.", "messages")
    if len(messages) > 1 or messages[0].get("role") != "user":
        raise _bad(
            "A workflow reads one message of the role user. It has its own instructions, and no memory of earlier "
            "messages.",
            "messages",
        )
    return _content(messages[0].get("content"))


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [p.get("text") for p in parts if isinstance(p, dict) and p.get("type") == "text"]
    if not texts or len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise _bad("The content of a message must be text.", "messages")
    return "".join(map(str, texts))


def _bad(message: str, field: str | None) -> RequestError:
    return RequestError(400, "invalid_request_error", message, field=field)


def is_streamed(asked: Mapping[str, Any]) -> bool:
    return bool(asked.get("stream"))


def completion(text: str, found: Prediction, model: str, mark: str | None = None) -> dict[str, Any]:
    """Return the body of an answer. mark: the name of the configuration, if the file has several."""
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {**_head("chat.completion", model, mark), "choices": [choice], "usage": _usage(found)}


class Events:
    """The server-sent events of an answer: its pieces, its end with the usage if asked for, and `[DONE]`."""

    def __init__(self, model: str, asked: Mapping[str, Any], mark: str | None = None):
        self._head, options = _head("chat.completion.chunk", model, mark), asked.get("stream_options")
        self._usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self._role = {"role": "assistant"}

    def text(self, text: str) -> str:
        delta, self._role = {**self._role, "content": text}, dict[str, str]()
        return self._event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def end(self, found: Prediction) -> str:
        end = self._event([{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}])
        return end + (self._event([], usage=_usage(found)) if self._usage else "") + "data: [DONE]\n\n"

    def _event(self, choices: list[Any], **more: Any) -> str:
        return f"data: {json.dumps({**self._head, 'choices': choices, **more})}\n\n"


def models(model: str, created: int) -> dict[str, Any]:
    """Return the body of /v1/models."""
    return {
        "object": "list",
        "data": [{"id": model, "object": "model", "created": created, "owned_by": "workbench"}],
    }


def _head(kind: str, model: str, mark: str | None) -> dict[str, Any]:
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": model}
    return {**head, "system_fingerprint": mark} if mark else head


def _usage(found: Prediction) -> dict[str, int]:
    prompt, answer = found.cost.prompt_tokens, found.cost.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}

"""Adapters, prompts and engines of DSPy, as messages of a chat and plain values.

In 3.4 an adapter's prompt is a list of messages; in 3.5 it is a `Prompt`, whose messages have typed parts, and the
default adapter is XMLAdapter. So adapters are always set explicitly, and only `to_messages` reads prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dspy
import dspy.adapters
from dspy import lm15
from dspy.utils.exceptions import AdapterParseError, LMError

from workbench.errors import NodeError

__all__ = ["ADAPTERS", "CLIENT_KEYS", "AdapterParseError", "LMError"]

#: Settings of a client, which are mixed with those of its requests. Our own list, as DSPy's is not public.
CLIENT_KEYS = frozenset(
    "api_key api_base base_url headers extra_headers timeout api_version azure_ad_token_provider organization project "
    "extra_query custom_llm_provider".split()
)
#: DSPy's adapters by their names in workflow files.
ADAPTERS = {"chat": dspy.ChatAdapter, "json": dspy.JSONAdapter, "xml": dspy.XMLAdapter}


def to_messages(prompt: Any) -> list[dict[str, Any]]:
    """Convert the output of an adapter's `format` to messages. Raises NodeError("unsupported") for parts that a chat
    does not have."""
    if isinstance(prompt, list):
        return [dict(message) for message in prompt]
    found = [{"role": "system", "content": _content(prompt.system)}] if prompt.system else []
    return [*found, *(one for message in prompt.messages for one in _rows(message))]


def to_prompt(messages: Sequence[Mapping[str, Any]]) -> Any:
    """Return messages in the form of an adapter's `format`."""
    kind: Any = getattr(dspy.adapters, "Prompt", None)
    if kind is None:
        return [dict(message) for message in messages]
    request = make_request({"model": "any", "messages": messages})
    return kind(system=request.system, messages=request.messages)


def make_request(body: Mapping[str, Any]) -> Any:
    """Convert the body of a chat completion to a request of DSPy's."""
    return lm15.request_from_openai_chat({**body, "messages": [dict(message) for message in body["messages"]]})


def read_request(request: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return (messages, settings of the call) of a request that DSPy made. Raises as `to_messages`."""
    config = request.config
    return to_messages(request), {
        "temperature": config.temperature,
        "max_tokens": config.max_tokens,
        "top_p": config.top_p,
        "stop": tuple(config.stop) if config.stop else None,
    }


def make_response(text: str, model: str, cut: bool = False, tokens: tuple[int, int] = (0, 0)) -> Any:
    """Make the answer of an engine. cut: at max_tokens. tokens: of the prompt, and of the answer."""
    return lm15.Response(
        id=None,
        model=model,
        message=lm15.Message.assistant([lm15.TextPart(text)]),
        finish_reason="length" if cut else "stop",
        usage=lm15.Usage(input_tokens=tokens[0], output_tokens=tokens[1]),
    )


def instruction_proposer(adapter: Any) -> Any:
    """Return GEPA's own proposer, with its request and answer in an adapter's form. Its default is JSON."""
    from dspy.teleprompt.gepa import InstructionProposer

    return InstructionProposer(adapter=adapter)


def _rows(message: Any) -> Iterator[dict[str, Any]]:
    """Yield a message of lm15's as one of a chat, or as several if it has the results of several calls."""
    if message.role == "tool":
        for part in message.parts:
            yield {"role": "tool", "tool_call_id": part.id, "content": _content(part.content)}
        return
    said = [p for p in message.parts if not isinstance(p, lm15.ToolCallPart | lm15.ThinkingPart)]
    found = {"role": "system" if message.role == "developer" else message.role, "content": _content(said)}
    if calls := message.parts_of(lm15.ToolCallPart):
        functions = [{"name": call.name, "arguments": json.dumps(dict(call.input))} for call in calls]
        named = zip(calls, functions, strict=True)
        found["tool_calls"] = [{"id": call.id, "type": "function", "function": one} for call, one in named]
    yield found


def _content(parts: Any) -> Any:
    """Return a text, or, if there are images, the parts of a message."""
    if isinstance(parts, str):
        return parts
    blocks = [_block(part) for part in parts]
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _block(part: Any) -> dict[str, Any]:
    if isinstance(part, lm15.TextPart | lm15.RefusalPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, lm15.ImagePart) and (part.url or part.data):
        return {"type": "image_url", "image_url": {"url": part.url or f"data:{part.media_type};base64,{part.data}"}}
    raise NodeError("unsupported", f"a message with a part of type '{part.type}': texts and images can be sent")

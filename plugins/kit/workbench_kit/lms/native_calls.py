"""Native tool calls of local checkpoints: their chat templates show the tools, their answers hold the calls.

The forms are those that templates teach: `<tool_call>{...}</tool_call>` (Hermes, Qwen), a bare object with `name` and
`parameters` (Llama 3), a list of objects (Mistral, whose mark `[TOOL_CALLS]` is a special token). An answer in another
form stays text, in which an agent can still find calls (`workbench_kit.answers`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import LMError
from workbench.lm import Request, Response, call_id
from workbench_kit.answers import load_loose
from workbench_kit.wire import as_it_came, dump_arguments

_BLOCK = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_MARK = re.compile(r"\A\s*(?:<\|python_tag\|>|\[TOOL_CALLS\])?\s*")


def check_format(request: Request) -> None:
    """Raise LMError for a response format, which no local checkpoint supports."""
    if request.response_format is not None:
        raise LMError("unsupported", "a model that runs here takes no response format")


def check_tools(request: Request, tokenizer: Any) -> None:
    """Raise LMError for tools if the chat template of a checkpoint does not show them."""
    if request.tools and "tools" not in str(tokenizer.chat_template or ""):
        raise LMError(
            "unsupported", "the chat template of this model shows no tools; write `native: false` for the agent"
        )


def read_native_calls(response: Response, request: Request) -> Response:
    """Return the same answer with its calls as `tool_calls`, if tools were offered and it ends with readable ones.

    The text keeps everything around the calls. A truncated answer is unchanged.
    """
    if not request.tools or response.finish != "stop":
        return response
    names = {str(tool["function"]["name"]) for tool in request.tools}
    text, calls = _split(response.text, names)
    if not calls:
        return response
    turn = len(request.messages)
    numbered = tuple(
        {"id": call_id(turn, n), "name": name, "arguments": arguments} for n, (name, arguments) in enumerate(calls)
    )
    return replace(response, text=text, finish="tool_calls", tool_calls=numbered)


def _split(text: str, names: Collection[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return (the text around the calls, (name, arguments as JSON) of each call); no calls if one is unreadable."""
    if blocks := list(_BLOCK.finditer(text)):
        calls = [_call(load_loose(block[1])) for block in blocks]
        return _BLOCK.sub("", text).strip(), [call for call in calls if call] if all(calls) else []
    body = load_loose(_MARK.sub("", text))
    calls = [_call(one) for one in (body if is_list(body) else [body])]
    if all(call and call[0] in names for call in calls):
        return "", [call for call in calls if call]
    return text, []


def _call(body: Any) -> tuple[str, str] | None:
    if not is_dict(body) or not isinstance(body.get("name"), str):
        return None
    arguments = body.get("arguments", body.get("parameters"))
    return (body["name"], json.dumps(arguments)) if is_dict(arguments) else None


def to_message(response: Response) -> dict[str, Any]:
    """Return the model's turn as a message for the next request. With calls it is unchanged, with all fields that its
    provider added and expects back; DeepSeek refuses its thoughts in any other message."""
    if response.message is not None and response.tool_calls:
        return as_it_came(response.message, response.tool_calls)
    message: dict[str, Any] = {"role": "assistant", "content": response.text}
    if response.tool_calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": dump_arguments(call["arguments"])},
            }
            for call in response.tool_calls
        ]
    return message


def to_template(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as chat templates read them: arguments of calls are objects, not the JSON of a server's
    protocol."""
    return [
        {**message, "tool_calls": [_with_object(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else dict(message)
        for message in messages
    ]


def _with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    loaded = load_loose(arguments) if isinstance(arguments, str) else arguments
    return {**call, "function": {**function, "arguments": loaded if is_dict(loaded) else arguments}}


def same_said(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a message of a conversation, without the ids of calls and the spaces of their JSON."""
    if not message.get("tool_calls"):
        return dict(message)
    functions = [call["function"] for call in to_template([message])[0]["tool_calls"]]
    return {
        "role": message["role"],
        "content": message.get("content"),
        "tool_calls": [[f["name"], f["arguments"]] for f in functions],
    }

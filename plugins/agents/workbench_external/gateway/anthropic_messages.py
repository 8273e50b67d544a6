"""Anthropic's Messages: body -> Ask, Refused -> error; no I/O. `message_events` writes answers.

For models whose server does not speak this API. Source: Anthropic's API reference. `table` has the translation of each
field; further departures:
- Refused: tools that only Anthropic's models know, and their blocks; documents and search results; images of the Files
  API.
- Blocks of thinking that an agent sends back are ignored: the gateway keeps what a provider wants back.
- Results of tools become messages of their own, before the rest of their turn; images in them follow as the user's.
- The stop sequence that ended an answer is unknown: stop_reason is then end_turn.
- Arguments of a call that are not a JSON object become {"invalid_json": TEXT}: a block can hold nothing else.
- Tokens are counted by a high estimate, a token for each three bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.lm import Message, estimate_tokens
from workbench_external.gateway import fields as f
from workbench_external.gateway.asks import Ask, Refused
from workbench_external.gateway.table import check_fields

_THINKING = ("thinking", "redacted_thinking")


def read_messages(body: Mapping[str, Any]) -> Ask:
    """Read a request. Raises Refused (400)."""
    ask = read_counted(body)
    settings = f.read_sampling(body, max_temperature=1.0)
    settings["max_tokens"] = f.as_whole(body.get("max_tokens"), "max_tokens", 1)
    if body.get("stop_sequences"):
        settings["stop"] = f.read_stops(body["stop_sequences"], "stop_sequences")
    if (form := _format(body)) is not None:
        settings["response_format"] = form
    if extra := _extra(body):
        settings["extra"] = extra
    stream = body.get("stream") is not None and f.as_flag(body["stream"], "stream")
    check_fields("messages", body)
    return Ask(ask.model, ask.messages, ask.tools, settings, stream=stream)


def read_counted(body: Mapping[str, Any]) -> Ask:
    """Read the model, messages and tools, which are all that a count request has. Raises Refused (400)."""
    model = f.as_name(body.get("model"), "model", "Send the name of a model.")
    listed = f.as_list(body.get("messages"), "messages", 'Send [{"role": "user", "content": "..."}].')
    if not listed:
        raise f.bad("messages", "must not be empty", 'Send [{"role": "user", "content": "..."}].')
    messages: list[Message] = []
    if body.get("system"):
        messages.append({"role": "system", "content": _system(body["system"], "system")})
    for n, one in enumerate(listed):
        place = f"messages[{n}]"
        message = f.as_dict(one, place, 'Send {"role": "user", "content": "..."}.')
        role = f.as_one_of(message.get("role"), f"{place}.role", ("user", "assistant", "system"))
        if role == "system":
            messages.append({"role": role, "content": _system(message.get("content"), f"{place}.content")})
        else:
            read = _of_assistant if role == "assistant" else _of_user
            messages += read(_blocks(message.get("content"), f"{place}.content"))
    return Ask(model, tuple(messages), _tools(body.get("tools")))


Placed = tuple[str, str, dict[str, Any]]
"""A block: where it stands, its type, and itself."""


def _blocks(content: Any, place: str) -> list[Placed]:
    if isinstance(content, str):
        return [(place, "text", {"type": "text", "text": content})]
    found: list[Placed] = []
    for n, one in enumerate(f.as_list(content, place, "Send a text, or a list of blocks.")):
        block = f.as_dict(one, f"{place}[{n}]", 'Send {"type": "text", "text": "..."}.')
        kind = f.as_text(block.get("type"), f"{place}[{n}].type", "Send text, image, tool_use or tool_result.")
        found.append((f"{place}[{n}]", kind, block))
    return found


def _system(value: Any, place: str) -> str:
    return "\n".join(_text(where, kind, block) for where, kind, block in _blocks(value, place))


def _text(place: str, kind: str, block: Mapping[str, Any]) -> str:
    if kind != "text":
        raise f.bad(f"{place}.type", f"cannot be {f.shown(kind)} here", "Send text.")
    return f.as_text(block.get("text"), f"{place}.text", "Send the text of this block.")


def _of_user(blocks: Sequence[Placed]) -> list[Message]:
    results: list[Message] = []
    pictured: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for place, kind, block in blocks:
        if kind == "tool_result":
            inner = [_part(*one) for one in _blocks(block.get("content") or [], f"{place}.content")]
            number = f.as_text(block.get("tool_use_id"), f"{place}.tool_use_id", "Send the id of the call.")
            text = f.as_content([part for part in inner if part["type"] == "text"])
            if block.get("is_error") is True:
                text = f"Error: {text}"  # a chat has no other place for it
            results.append({"role": "tool", "content": text, "tool_call_id": number})
            pictured += [part for part in inner if part["type"] != "text"]
        else:
            parts.append(_part(place, kind, block))
    if pictured or parts or not results:
        results.append({"role": "user", "content": f.as_content([*pictured, *parts])})
    return results


def _part(place: str, kind: str, block: Mapping[str, Any]) -> dict[str, Any]:
    if kind != "image":
        known = ("text", "image", "tool_result") if kind != "text" else ("text",)
        f.as_one_of(kind, f"{place}.type", known)
        return f.text_part(_text(place, kind, block))
    source = f.as_dict(block.get("source"), f"{place}.source", "Send its type, and data or url.")
    if f.as_one_of(source.get("type"), f"{place}.source.type", ("base64", "url")) == "url":
        return f.image_part(source.get("url"), f"{place}.source.url")
    media = f.as_text(source.get("media_type"), f"{place}.source.media_type", "Send, say, image/png.")
    data = f.as_text(source.get("data"), f"{place}.source.data", "Send the image in base64.")
    return f.image_part(f"data:{media};base64,{data}", f"{place}.source.media_type")


def _of_assistant(blocks: Sequence[Placed]) -> list[Message]:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for place, kind, block in blocks:
        if kind == "tool_use":
            name = f.as_name(block.get("name"), f"{place}.name", "Send the name of the tool.")
            given = f.as_dict(block.get("input"), f"{place}.input", "Send the arguments as an object.")
            number = f.as_text(block.get("id"), f"{place}.id", "Send the id of the call.")
            written = json.dumps(given)
            calls.append({"id": number, "type": "function", "function": {"name": name, "arguments": written}})
        elif kind not in _THINKING:
            f.as_one_of(kind, f"{place}.type", ("text", "tool_use", *_THINKING))
            texts.append(_text(place, kind, block))
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) if texts else None}
    return [{**message, "tool_calls": calls} if calls else message]


def _tools(value: Any) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = []
    for n, one in enumerate(f.as_list(value or [], "tools", "Send a list of tools.")):
        tool = f.as_dict(one, f"tools[{n}]", 'Send {"name": ..., "input_schema": {...}}.')
        if tool.get("type") not in (None, "custom"):
            problem = f"cannot be {f.shown(tool['type'])}: Anthropic defines it, and only a model of theirs knows it"
            raise f.bad(f"tools[{n}].type", problem, "Send a tool of your own, with name and input_schema.")
        found.append(f.read_function(tool, f"tools[{n}]", "input_schema"))
    return tuple(found)


def _extra(body: Mapping[str, Any]) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if body.get("top_k") is not None:
        extra["top_k"] = f.as_whole(body["top_k"], "top_k", 0)
    config = body.get("output_config")
    if isinstance(config, dict) and config.get("effort") is not None:
        extra["reasoning_effort"] = f.as_text(config["effort"], "output_config.effort", "Send low, medium or high.")
    if body.get("tool_choice") is None:
        return extra
    choice = f.as_dict(body["tool_choice"], "tool_choice", 'Send {"type": "auto"}.')
    kind = f.as_one_of(choice.get("type"), "tool_choice.type", ("auto", "any", "tool", "none"))
    if kind == "tool":
        extra["tool_choice"] = f.choose_function(
            f.as_name(choice.get("name"), "tool_choice.name", "Send a tool's name.")
        )
    else:
        extra["tool_choice"] = "required" if kind == "any" else kind
    if choice.get("disable_parallel_tool_use"):
        extra["parallel_tool_calls"] = False
    return extra


def _format(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return output_config.format, formerly output_format, in the form of chat completions."""
    config = body.get("output_config")
    form = config.get("format") if isinstance(config, dict) else body.get("output_format")
    if form is None:
        return None
    form = f.as_dict(form, "output_config.format", 'Send {"type": "json_schema", "schema": {...}}.')
    f.as_one_of(form.get("type"), "output_config.format.type", ("json_schema",))
    schema = f.as_dict(form.get("schema"), "output_config.format.schema", "Send a JSON Schema.")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def write_count(ask: Ask) -> dict[str, int]:
    """Return the body of the answer to a count request."""
    tools = [{"content": json.dumps(tool)} for tool in ask.tools]
    return {"input_tokens": estimate_tokens((*ask.messages, *tools))}


def write_models(names: Sequence[str]) -> dict[str, Any]:
    """Return the list of models in Anthropic's form."""
    data = [write_model(name) for name in names]
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return {"data": data, "has_more": False, **ends}


def write_model(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def write_error(refused: Refused) -> dict[str, Any]:
    """Return the body of an error, also used as an event of a stream."""
    kind = _KINDS.get(refused.status, "invalid_request_error" if refused.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": refused.message}}

"""Turns of a model as they are sent back to a server: unchanged, or without fields that only their provider knows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import split_thoughts
from workbench_kit.wire.dialects import is_thought

#: Fields of a message that every request can repeat.
_PLAIN_MESSAGE = frozenset("role content tool_calls tool_call_id refusal annotations audio function_call".split())
_NEEDED = frozenset(("role", "content", "tool_call_id"))
_PLAIN_CALL = frozenset(("id", "type", "function", "index"))


def unknown_parts(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the message if it has fields that only its provider knows and may expect back, e.g. a signature; else
    None."""
    calls, content = message.get("tool_calls"), message.get("content")
    # Beside calls even an empty one counts: DeepSeek wants its thoughts back also where there were none.
    beside = any(value or (calls and value == "") for name, value in message.items() if name not in _PLAIN_MESSAGE)
    within = is_list(calls) and any(is_dict(c) and any(c[k] for k in c if k not in _PLAIN_CALL) for c in calls)
    # MiniMax wants the thoughts in the text of a turn with calls back, too.
    thought = bool(calls) and isinstance(content, str) and bool(split_thoughts(content)[0])
    return message if beside or within or thought or is_list(content) else None


def plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without fields that only its provider knows: demos of one model may be shown to another. Empty
    fields of OpenAI's are left out, too: its client writes them all, and Mistral refuses them."""
    plain = {name: value for name, value in message.items() if name in _PLAIN_MESSAGE and (value or name in _NEEDED)}
    plain.pop("annotations", None)
    if is_list(content := message.get("content")):
        said = [part for part in content if not (is_dict(part) and is_thought(part))]
        plain["content"] = said or ""
    if message.get("tool_calls"):
        calls: list[dict[str, Any]] = message["tool_calls"]
        plain["tool_calls"] = [{name: call[name] for name in call if name in _PLAIN_CALL} for call in calls]
    return plain


def as_it_came(message: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a message as its provider sent it, for the next request.

    Gemini expects its signatures back, Anthropic its thinking blocks, DeepSeek its thoughts.

    calls: those of the message that stay, as `Response.tool_calls` has them: their ids may be ours. Arguments that are
    no JSON are sent as we read them, since servers refuse such a message.
    """
    left, kept = list(message["tool_calls"]), list[dict[str, Any]]()
    for call in calls:
        own = next((one for one in left if one.get("id") == call["id"]), None)
        own = own or next(one for one in left if one["function"]["name"] == call["name"])
        left.remove(own)
        written = own["function"].get("arguments")
        function = {
            **own["function"],
            "arguments": written if _is_object(written) else dump_arguments(call["arguments"]),
        }
        kept.append({**own, "id": call["id"], "function": function})
    return {**message, "role": "assistant", "tool_calls": kept}


def dump_arguments(arguments: Any) -> str:
    """Return the arguments of a call as the JSON of an object, which servers expect; a text that is none is put inside
    one."""
    if isinstance(arguments, str):
        return arguments if _is_object(arguments) else json.dumps({"invalid_json": arguments})
    return json.dumps(arguments)


def _is_object(text: Any) -> bool:
    try:
        return isinstance(text, str) and is_dict(json.loads(text))
    except (ValueError, RecursionError):
        return False

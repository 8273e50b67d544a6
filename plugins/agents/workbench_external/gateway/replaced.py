"""Replaces texts in a request. Nothing else of its body changes.

Messages and tools that the agent did not send (examples, our functions) are inserted in the form of its API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import Message
from workbench_external.gateway import gemini
from workbench_external.gateway.view import PLACE, Path, View
from workbench_kit.wire import TURN


def replace_texts(
    view: View,
    body: Mapping[str, Any],
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None = None,
    form: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the body with the texts, tools and form of changed copies of the view's; None: unchanged."""
    changed: dict[str, Any] = dict(body)
    for message in messages:
        place = message.get(PLACE)
        if place is None or message is (before := view.messages[place]) or not view.places[place].texts:
            continue  # an inserted, unchanged or earlier message
        for path, old, new in zip(view.places[place].texts, _texts(before), _texts(message), strict=True):
            if old != new:
                changed = _put(changed, path, new)
    for (path, schema), old, new in zip(view.tool_paths, view.tools, tools or (), strict=False):
        for name, own in (("description", "description"), ("parameters", schema)):
            if (value := new["function"].get(name)) != old["function"].get(name):
                changed = _put(changed, (*path, own), value)
    if view.form_path and form is not None and form != view.form:
        changed = _put(changed, view.form_path, form["json_schema"]["schema"])
    if more := (tools or ())[len(view.tools) :]:
        changed = _with_tools(view.api, changed, [tool["function"] for tool in more])
    return _with_inserted(view, changed, messages)


def without_places(messages: Sequence[Message]) -> list[Message]:
    """Return messages in the form to send and store."""
    return [{name: value for name, value in message.items() if name != PLACE} for message in messages]


def _texts(message: Message) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif is_list(content):
        yield from (str(part["text"]) for part in content if is_dict(part) and part.get("type") == "text")


def _put(value: Any, path: Path, new: Any) -> Any:
    """Return a copy of a value with another one at a path. The given value is not changed."""
    if not path:
        return new
    copy: Any = dict(value) if is_dict(value) else list(value)
    inside = copy.get(path[0]) if is_dict(value) else copy[path[0]]
    copy[path[0]] = _put(inside, path[1:], new)
    return copy


# Tools and messages of ours

_TOOLS: Mapping[str, Any] = {
    "chat": lambda function: {"type": "function", "function": function},
    "responses": lambda function: {"type": "function", "strict": False, **function},
    "messages": lambda function: {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function.get("parameters") or {"type": "object"},
    },
}
_LISTS = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}


def _with_tools(api: str, body: Mapping[str, Any], functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if api == "gemini":
        return gemini.with_tools(body, functions)
    return {**body, "tools": [*(body.get("tools") or ()), *map(_TOOLS[api], functions)]}


def _with_inserted(view: View, body: dict[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
    """Insert the messages without a place, each before the message that follows it."""
    before: dict[int | None, list[Message]] = {}
    waiting: list[Message] = []
    for message in messages:
        if (place := message.get(PLACE)) is None:
            waiting.append(message)
        elif (entry := view.places[place].entry) is not None and waiting:
            before.setdefault(entry, []).extend(waiting)
            waiting = []
    if waiting:
        before[None] = waiting
    if not before or view.api not in _LISTS:
        return body
    name, write = _LISTS[view.api], _MESSAGES[view.api] if view.api in _MESSAGES else gemini.make_writer(messages)
    listed = body.get(name)
    if not is_list(listed):
        listed = [listed if is_dict(listed) else {"role": "user", "content": listed}] if listed else []
    found: list[Any] = []
    for n, own in enumerate([*listed, None]):
        for message in before.get(None if n == len(listed) else n, ()):
            if message.get("role") == "system" and view.api != "chat":
                body = _with_system(view.api, body, str(message.get("content")))
            else:
                found += write(message)
        found += [] if n == len(listed) else [own]
    return {**body, name: gemini.join_results(found) if view.api == "gemini" else found}


def _with_system(api: str, body: Mapping[str, Any], text: str) -> dict[str, Any]:
    if api == "gemini":
        return gemini.with_system(body, text)
    name = "instructions" if api == "responses" else "system"
    own = body.get(name)
    if is_list(own):
        return {**body, name: [{"type": "text", "text": text}, *own]}
    return {**body, name: f"{text}\n\n{own}" if own else text}


def _as_chat(message: Message) -> list[dict[str, Any]]:
    return [{name: value for name, value in message.items() if name != TURN}]


def _as_items(message: Message) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or ()
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    if TURN in message:
        return _kept(message[TURN], "function_call", "call_id", calls)
    said = [{"role": message["role"], "content": message["content"]}] if message.get("content") else []
    return [*said, *({"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls)]


def _as_turns(message: Message) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or ()
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return [{"role": "user", "content": [result]}]
    if TURN in message:
        return [{"role": "assistant", "content": _kept(message[TURN], "tool_use", "id", calls)}]
    if not calls:
        return [{"role": message["role"], "content": message["content"]}]
    said = [{"type": "text", "text": message["content"]}] if message.get("content") else []
    uses = [
        {"type": "tool_use", "id": c["id"], "name": c["function"]["name"], "input": _loaded(c["function"]["arguments"])}
        for c in calls
    ]
    return [{"role": "assistant", "content": [*said, *uses]}]


_MESSAGES: Mapping[str, Any] = {"chat": _as_chat, "responses": _as_items, "messages": _as_turns}


def _kept(turn: Sequence[Any], kind: str, key: str, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return a turn as received, without the omitted calls, because a call needs its result."""
    ids = {call["id"] for call in calls}
    return [part for part in turn if part.get("type") != kind or part.get(key) in ids]


def _loaded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return {"invalid_json": arguments}

"""Bodies of Gemini's generateContent: finds their texts, and inserts ours; no I/O.

Source: https://ai.google.dev/api/generate-content, https://ai.google.dev/api/caching (Content, Part, Tool, Schema).
Google's servers accept each name in camel case and with underscores, and an object instead of a list of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import Message
from workbench_external.gateway.places import Path, View, joined
from workbench_kit.wire import TURN

_PARAMETERS = ("parameters", "parametersJsonSchema", "parameters_json_schema")
_FORMS = ("responseSchema", "response_schema", "responseJsonSchema", "response_json_schema", "_responseJsonSchema")


def read_view(view: View, body: Mapping[str, Any]) -> None:
    """Add the texts, tools and answer form of a body to a view."""
    system = _own(body, "systemInstruction")
    if is_dict(body.get(system)):
        _read_content(view, "system", body[system], (system,), None)
    for n, (path, content) in enumerate(_listed(body, "contents", ())):
        _read_content(view, "assistant" if content.get("role") == "model" else "user", content, path, n)
    for path, tool in _listed(body, "tools", ()):
        for at, function in _listed(tool, "functionDeclarations", path):
            own = next((name for name in _PARAMETERS if is_dict(function.get(name))), _PARAMETERS[0])
            found: dict[str, Any] = {"name": str(function.get("name"))}
            if is_dict(function.get(own)):
                found["parameters"] = function[own]
            if isinstance(function.get("description"), str):
                found["description"] = function["description"]
            view.tools.append({"type": "function", "function": found})
            view.tool_paths.append((at, own))
    name = _own(body, "generationConfig")
    settings = body[name] if is_dict(body.get(name)) else {}
    own = next((form for form in _FORMS if is_dict(settings.get(form))), None)
    if own is not None:
        named = {"name": str(settings[own].get("title") or "answer"), "schema": settings[own]}
        view.form, view.form_path = {"type": "json_schema", "json_schema": named}, (name, own)
    elif settings.get(_own(settings, "responseMimeType")) == "application/json":
        view.form = {"type": "json_object"}


def _read_content(view: View, role: str, content: Mapping[str, Any], path: Path, entry: int | None) -> None:
    """Add a turn: one message, and one more for each tool result in it."""
    parts, texts, calls = list[dict[str, Any]](), list[Path](), list[dict[str, Any]]()
    results = False
    for at, part in _listed(content, "parts", path):
        call, result, data = (part.get(_own(part, n)) for n in ("functionCall", "functionResponse", "inlineData"))
        if isinstance(part.get("text"), str):
            if part.get("thought") is not True:
                parts.append({"type": "text", "text": part["text"]})
                texts.append((*at, "text"))
        elif is_dict(call):
            function = {"name": str(call.get("name")), "arguments": json.dumps(call.get("args") or {})}
            calls.append({"id": _id_of(call), "type": "function", "function": function})
        elif is_dict(result):
            results = True
            told = json.dumps(result.get("response"), ensure_ascii=False)
            view.put({"role": "tool", "tool_call_id": _id_of(result), "content": told}, entry)
        elif is_dict(data) and str(kind := data.get(_own(data, "mimeType"))).startswith("image/"):
            parts.append({"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data.get('data')}"}})
    if parts or calls or not results:
        view.put({"role": role, "content": joined(parts), **({"tool_calls": calls} if calls else {})}, entry, texts)


def _id_of(call: Mapping[str, Any]) -> str:
    """Return the id of a call, or of its result. If the model gave none, the name identifies it."""
    return str(call.get("id") or call.get("name"))


def _own(body: Mapping[str, Any], name: str) -> str:
    """Return a name as spelled in a body."""
    return name if name in body else other if (other := _underscored(name)) in body else name


def _underscored(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()


def _listed(body: Mapping[str, Any], name: str, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield (path, object) for each object in a list of a body. A single object counts as a list. path: of the body."""
    own = _own(body, name)
    value = body.get(own)
    if is_dict(value):
        yield (*path, own), value
    for n, one in enumerate(value if is_list(value) else ()):
        yield (*path, own, n), one if is_dict(one) else {}


# Texts, tools and turns of ours


def with_tools(body: Mapping[str, Any], functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add functions to a body. They join the list of functions that it has, since some models accept only one list."""
    added = [
        {
            "name": function["name"],
            "description": function.get("description", ""),
            "parametersJsonSchema": function.get("parameters") or {"type": "object"},
        }
        for function in functions
    ]
    tools: list[Any] = [tool for _, tool in _listed(body, "tools", ())]
    for n, tool in enumerate(tools):
        if is_list(known := tool.get(own := _own(tool, "functionDeclarations"))):
            tools[n] = {**tool, own: [*known, *added]}
            return {**body, "tools": tools}
    return {**body, "tools": [*tools, {"functionDeclarations": added}]}


def with_system(body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Add a part at the beginning of a body's instruction."""
    own = _own(body, "systemInstruction")
    content = body[own] if is_dict(body.get(own)) else {}
    parts = [part for _, part in _listed(content, "parts", ())]
    return {**body, own: {**content, "parts": [{"text": text}, *parts]}}


def make_writer(messages: Sequence[Message]) -> Callable[[Message], list[dict[str, Any]]]:
    """Return a function that writes a message of a conversation in the form of this API. messages: all of them."""
    names = {call["id"]: call["function"]["name"] for m in messages for call in m.get("tool_calls") or ()}
    turns = [part for message in messages for part in message.get(TURN) or ()]
    ids = {part["functionCall"].get("id") for part in turns if "functionCall" in part}  # the provider's own

    def write(message: Message) -> list[dict[str, Any]]:
        calls = message.get("tool_calls") or ()
        if message["role"] == "tool":
            number = message["tool_call_id"]
            result = {"name": names.get(number, number), "response": {"result": message["content"]}}
            own = {"id": number} if number in ids else {}
            return [{"role": "user", "parts": [{"functionResponse": {**own, **result}}]}]
        role = "model" if message["role"] == "assistant" else "user"
        if message.get(TURN):
            return [{"role": role, "parts": _without_others(message[TURN], calls)}]
        said = [{"text": message["content"]}] if message.get("content") else []
        functions = [call["function"] for call in calls]
        made = [{"functionCall": {"name": one["name"], "args": _loaded(one["arguments"])}} for one in functions]
        return [{"role": role, "parts": [*said, *made]}]

    return write


def _without_others(parts: Sequence[Any], calls: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return a turn as received, without the omitted calls, because each call needs its result."""
    kept = {call["id"] for call in calls} | {call["function"]["name"] for call in calls}
    return [part for part in parts if not is_dict(call := part.get("functionCall")) or _id_of(call) in kept]


def _loaded(arguments: str) -> Any:
    try:
        return found if is_dict(found := json.loads(arguments)) else {"value": found}
    except (ValueError, RecursionError):
        return {"invalid_json": arguments}


def join_results(contents: Sequence[Any]) -> list[Any]:
    """Merge neighboring contents of only tool results: the turn after some calls must have all of their results."""
    found: list[Any] = []
    for content in contents:
        if found and _is_results(content) and _is_results(found[-1]):
            found[-1] = {**found[-1], "parts": [*found[-1]["parts"], *content["parts"]]}
        else:
            found.append(content)
    return found


def _is_results(content: Any) -> bool:
    parts = content.get("parts") if is_dict(content) else None
    return bool(parts) and is_list(parts) and all(is_dict(part) and "functionResponse" in part for part in parts)

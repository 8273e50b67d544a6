"""The texts of a request in its own API, as messages of a chat, and their places in its body.

Nothing is refused here: unknown parts are skipped, and pass unchanged. `replaced` puts other texts in their place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import Message
from workbench_external.gateway.gemini import read_view as read_gemini
from workbench_external.gateway.places import PLACE as PLACE, Path as Path, View as View

#: The field of a tool with the schema of its parameters, by API.
_SCHEMAS = {"chat": "parameters", "responses": "parameters", "messages": "input_schema"}
#: The places of the answer's form in a request, by API, and how the schema is wrapped there.
_FORMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "chat": (("response_format", "json_schema"),),
    "responses": (("text", "format"),),
    "messages": (("output_config", "format"), ("output_format",)),
}


def read_view(api: str, body: Mapping[str, Any], earlier: Sequence[Message] = ()) -> View:
    """Read a body. earlier: the conversation that it continues."""
    view = View(api)
    view.add_earlier(earlier)
    _READERS[api](view, body)
    _read_tools(view, body.get("tools"), ("tools",))
    for path in _FORMS.get(api, ()):
        if body.get(path[0]) is None:
            continue
        form = _at(body, path)
        if is_dict(form) and is_dict(form.get("schema")):
            named = {"name": form.get("name") or "answer", "schema": form["schema"]}
            view.form, view.form_path = {"type": "json_schema", "json_schema": named}, (*path, "schema")
            break
        form = _at(body, path[:1] if api == "chat" else path)
        if is_dict(form) and form.get("type") not in (None, "text"):
            view.form = form
            break
    return view


def _read_chat(view: View, body: Mapping[str, Any]) -> None:
    for n, message in enumerate(_dicts(body.get("messages"))):
        names = ("name", "tool_call_id", "tool_calls")
        more = {name: message[name] for name in names if message.get(name)}
        view.add(str(message.get("role")), message.get("content"), ("messages", n, "content"), n, **more)


def _read_response(view: View, body: Mapping[str, Any]) -> None:
    if isinstance(body.get("instructions"), str):
        view.add("system", body["instructions"], ("instructions",))
    given = body.get("input")
    if isinstance(given, str):
        view.add("user", given, ("input",), 0)  # like a list of one
    for n, item in enumerate(_dicts(given)):
        match item.get("type", "message"):
            case "message":
                view.add(str(item.get("role")), item.get("content"), ("input", n, "content"), n)
            case "function_call" | "custom_tool_call":
                written = item.get("arguments", item.get("input"))
                _add_call(view, n, item.get("call_id"), item.get("name"), written)
            case "function_call_output" | "custom_tool_call_output":
                view.add("tool", item.get("output"), ("input", n, "output"), n, tool_call_id=item.get("call_id"))
            case _:
                pass


def _read_messages(view: View, body: Mapping[str, Any]) -> None:
    if body.get("system"):
        view.add("system", body["system"], ("system",))
    for n, message in enumerate(_dicts(body.get("messages"))):
        content, path = message.get("content"), ("messages", n, "content")
        blocks = [*_dicts(content)]
        results = [(k, block) for k, block in enumerate(blocks) if block.get("type") == "tool_result"]
        for k, block in results:
            told = block.get("content") or ""
            view.add("tool", told, (*path, k, "content"), n, tool_call_id=block.get("tool_use_id"))
        if not results or len(results) < len(blocks):
            view.add(str(message.get("role")), content, path, n)
        for block in blocks:
            if block.get("type") == "tool_use":
                _add_call(view, n, block.get("id"), block.get("name"), block.get("input"))


def _read_completion(view: View, body: Mapping[str, Any]) -> None:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        view.add("user", prompt, ("prompt",))
    for n, text in enumerate(prompt if is_list(prompt) else ()):
        if isinstance(text, str):
            view.add("user", text, ("prompt", n))


_READERS = {
    "chat": _read_chat,
    "responses": _read_response,
    "messages": _read_messages,
    "completions": _read_completion,
    "gemini": read_gemini,
}


def _add_call(view: View, entry: int, number: Any, name: Any, arguments: Any) -> None:
    """Add a tool call: to the turn before it, or as a turn of its own."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"id": str(number), "type": "function", "function": {"name": str(name), "arguments": written}}
    last = view.messages[-1] if view.messages else {}
    if last.get("role") == "assistant":
        view.messages[-1] = {**last, "tool_calls": [*last.get("tool_calls", ()), call]}
    else:
        view.add("assistant", None, (), entry, tool_calls=[call])


def _read_tools(view: View, tools: Any, path: Path) -> None:
    for n, tool in enumerate(_dicts(tools)):
        at = (*path, n)
        if is_list(tool.get("tools")):  # a namespace of OpenAI's
            _read_tools(view, tool["tools"], (*at, "tools"))
            continue
        for name in ("function", "custom"):
            if is_dict(tool.get(name)):
                tool, at = tool[name], (*at, name)
        own = _SCHEMAS.get(view.api, "parameters")
        schema = tool.get(own)
        if isinstance(tool.get("name"), str) and ("description" in tool or schema is not None):
            function = {"name": tool["name"], **({"parameters": schema} if is_dict(schema) else {})}
            if isinstance(tool.get("description"), str):
                function["description"] = tool["description"]
            view.tools.append({"type": "function", "function": function})
            view.tool_paths.append((at, own))


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value.get(str(step)) if is_dict(value) else None
    return value


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list, with {} in place of other values."""
    return (one if is_dict(one) else {} for one in (value if is_list(value) else ()))

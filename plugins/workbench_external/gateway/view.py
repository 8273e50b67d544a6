"""The texts of a request in the words of its own API, as messages of a chat, and where they stand in its body.

Nothing here refuses: what is not known is passed over, and passes as it is. `replaced` puts other texts in their place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import Message

#: Names the place of a message in its body (`View.places`); it is no part of the message, and is never sent.
PLACE = "#place"
Path = tuple[str | int, ...]
#: By type of a part with a text: the field that holds it.
_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "summary_text": "text", "refusal": "refusal"}
#: The field of a tool with the schema of its parameters, by API.
SCHEMAS = {"chat": "parameters", "responses": "parameters", "messages": "input_schema"}
#: Where a request names the form of its answer, by API, and how the schema is wrapped there.
_FORMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "chat": (("response_format", "json_schema"),),
    "responses": (("text", "format"),),
    "messages": (("output_config", "format"), ("output_format",)),
}


@dataclass(slots=True)
class Place:
    """Where a message stands: entry, its index in the list of the body, if it is there; texts, the path of each."""

    entry: int | None = None
    texts: list[Path] = field(default_factory=list)


@dataclass(slots=True)
class View:
    """A body as messages, tools and the form of its answer, with the paths of what may be replaced.

    earlier: how many of the messages are not in the body, which only refers to them; they come first.
    """

    api: str
    messages: list[Message] = field(default_factory=list)
    tools: list[Mapping[str, Any]] = field(default_factory=list)
    form: Mapping[str, Any] | None = None
    places: list[Place] = field(default_factory=list)
    tool_paths: list[Path] = field(default_factory=list)
    form_path: Path = ()
    earlier: int = 0

    def add(self, role: str, content: Any, path: Path, entry: int | None = None, **more: Any) -> None:
        """Add a message. content: a text or a list of parts, which stands at the path."""
        if isinstance(content, str):
            self._put({"role": role, "content": content, **more}, Place(entry, [path]))
            return
        place, found = Place(entry), list[dict[str, Any]]()
        for n, part in enumerate(content if is_list(content) else ()):
            name = _TEXTS.get(str(part.get("type"))) if is_dict(part) else None
            if name is not None and isinstance(part.get(name), str):
                place.texts.append((*path, n, name))
                found.append({"type": "text", "text": part[name]})
            elif is_dict(part) and (image := _image(part)) is not None:
                found.append({"type": "image_url", "image_url": image})
        if len(found) == 1 and found[0]["type"] == "text":
            self._put({"role": role, "content": found[0]["text"], **more}, place)
        else:
            self._put({"role": role, "content": found or None, **more}, place)

    def _put(self, message: dict[str, Any], place: Place) -> None:
        message[PLACE] = len(self.places)
        self.messages.append(message)
        self.places.append(place)

    def add_earlier(self, messages: Sequence[Message]) -> None:
        """Add what was said before, which the body does not hold."""
        for message in messages:
            self._put(dict(message), Place())
        self.earlier = len(messages)

    def is_earlier(self, message: Message) -> bool:
        """Return True for a message, or a changed copy of one, that the body only refers to."""
        return PLACE in message and message[PLACE] < self.earlier


def read_view(api: str, body: Mapping[str, Any], earlier: Sequence[Message] = ()) -> View:
    """The view of a body. earlier: the conversation that it goes on with."""
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
        view.add("user", given, ("input",), 0)  # which is a list of one
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
}


def _add_call(view: View, entry: int, number: Any, name: Any, arguments: Any) -> None:
    """A call of a tool: part of the turn before it, or a turn of its own."""
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
        schema = tool.get(SCHEMAS.get(view.api, ""))
        if isinstance(tool.get("name"), str) and ("description" in tool or schema is not None):
            function = {"name": tool["name"], **({"parameters": schema} if is_dict(schema) else {})}
            if isinstance(tool.get("description"), str):
                function["description"] = tool["description"]
            view.tools.append({"type": "function", "function": function})
            view.tool_paths.append(at)


def _image(part: Mapping[str, Any]) -> dict[str, Any] | None:
    url, source = part.get("image_url"), part.get("source")
    if part.get("type") not in ("image_url", "input_image", "image"):
        return None
    if is_dict(source):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
    found = url if is_dict(url) else {"url": url}
    return {"url": str(found.get("url"))}


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value.get(str(step)) if is_dict(value) else None
    return value


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list, each at its index."""
    return (one if is_dict(one) else {} for one in (value if is_list(value) else ()))

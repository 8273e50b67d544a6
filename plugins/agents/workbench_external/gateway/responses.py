"""OpenAI's Responses: body -> Ask, and answers for later reference; no I/O. `response_events` writes answers.

For models whose server does not speak this API. Source: OpenAI's API reference. `table` has the translation of each
field; further departures:

- Refused: tools that only OpenAI's models know, allowed_tools; files and audio.
- `store` keeps the last 256 answers of a session, in memory; false keeps none. An unknown `previous_response_id` or
  item gets a 404.
- Instructions become the first message, with the role system; those of an earlier answer are ignored, as by OpenAI.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.lm import Message
from workbench_external.gateway import fields as f
from workbench_external.gateway.asks import Ask, Refused
from workbench_external.gateway.table import RESPONSES, check_fields

#: Maximum answers of one session to keep for later requests; the oldest are dropped first.
MAX_KEPT = 256

_ROLES = ("system", "developer", "user", "assistant")
_TEXTS = ("input_text", "output_text", "text", "summary_text")


@dataclass(slots=True)
class StoredAnswers:
    """The latest answers of one session, each with its body and the conversation up to it."""

    _kept: OrderedDict[str, tuple[Mapping[str, Any] | None, tuple[Message, ...]]] = field(default_factory=OrderedDict)
    _items: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _passed: deque[Callable[[], tuple[str, tuple[Message, ...]] | None]] = field(
        default_factory=lambda: deque(maxlen=MAX_KEPT)
    )

    def keep(self, body: Mapping[str, Any], conversation: tuple[Message, ...]) -> None:
        self._keep(body["id"], body, conversation)
        self._items |= {item["id"]: item for item in body["output"]}

    def keep_passed(self, read: Callable[[], tuple[str, tuple[Message, ...]] | None]) -> None:
        """Keep an answer that the model's own server stores. read: returns its id, and the conversation up to it. It is
        called only when needed, since most are never continued."""
        self._passed.append(read)

    def _read_passed(self) -> None:
        while self._passed:
            if (found := self._passed.popleft()()) is not None:
                self._keep(found[0], None, found[1])

    def _keep(self, number: str, body: Mapping[str, Any] | None, conversation: tuple[Message, ...]) -> None:
        self._kept[number] = (body, conversation)
        while len(self._kept) > MAX_KEPT:
            self._forget(next(iter(self._kept)))

    def wrote(self, number: str) -> bool:
        """Return True if an answer was written here, not by the model's own server."""
        return number in self._kept and self._kept[number][0] is not None

    def earlier(self, body: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return the conversation that a request continues, as far as it is known here."""
        if (number := body.get("previous_response_id")) is not None:
            self._read_passed()
        return self._kept[number][1] if isinstance(number, str) and number in self._kept else ()

    def body(self, number: str) -> Mapping[str, Any]:
        """Return the body of an answer. Raises Refused (404)."""
        if (body := self._find(number, "response_id")[0]) is None:
            raise _not_kept(number, "response_id")  # by the model's server, which was asked
        return body

    def conversation(self, number: str) -> tuple[Message, ...]:
        """Return the messages up to and including an answer. Raises Refused (404)."""
        return self._find(number, "previous_response_id")[1]

    def item(self, number: str, place: str) -> Mapping[str, Any]:
        """Return a part of an answer. Raises Refused (404)."""
        if number not in self._items:
            raise Refused(
                404, "not_found", f"Item {f.shown(number)} is not kept here. Send the item itself.", field=place
            )
        return self._items[number]

    def drop(self, number: str) -> None:
        """Remove an answer. Raises Refused (404)."""
        self._find(number, "response_id")
        self._forget(number)

    def _forget(self, number: str) -> None:
        body, _ = self._kept.pop(number)
        for item in (body or {}).get("output", ()):
            self._items.pop(item["id"], None)

    def _find(self, number: str, place: str) -> tuple[Mapping[str, Any] | None, tuple[Message, ...]]:
        self._read_passed()
        if number not in self._kept:
            raise _not_kept(number, place)
        return self._kept[number]


def _not_kept(number: str, place: str) -> Refused:
    told = f"Response {f.shown(number)} is not kept here. Send all items in input instead."
    return Refused(404, "not_found", told, field=place)


def refuse_background(body: Mapping[str, Any]) -> None:
    """Raise Refused (400) if the answer would come later, as its cost would not be recorded."""
    f.refuse_set(body, {"background": RESPONSES[""].refused["background"]})


def read_response(body: Mapping[str, Any], stored: StoredAnswers) -> tuple[Ask, tuple[Message, ...]]:
    """Return the Ask of a request, and its conversation without instructions. Raises Refused (400, 404)."""
    model = f.as_name(body.get("model"), "model", "Send the name of a model.")
    messages: list[Message] = []
    if body.get("previous_response_id") is not None:
        number = f.as_text(body["previous_response_id"], "previous_response_id", "Send the id of an answer.")
        messages += stored.conversation(number)
    given = body.get("input")
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    else:
        listed = f.as_list([] if given is None else given, "input", "Send a text, or a list of items.")
        _add_items(messages, listed, stored)
    if not messages:
        raise f.bad("input", "must not be empty", "Send a text, or a list of items.")
    conversation = tuple(messages)
    if body.get("instructions") is not None:
        text = f.as_text(body["instructions"], "instructions", "Send a text.")
        messages.insert(0, {"role": "system", "content": text})
    stream = body.get("stream") is not None and f.as_flag(body["stream"], "stream")
    ask = Ask(model, tuple(messages), _tools(body.get("tools")), _settings(body), stream=stream)
    check_fields("responses", body)
    return ask, conversation


def _add_items(messages: list[Message], items: Sequence[Any], stored: StoredAnswers) -> None:
    open_turn = False  # whether the last message is the model's turn that these items began
    pictured: list[dict[str, Any]] = []  # images in the results of one turn
    for n, one in enumerate(items):
        place = f"input[{n}]"
        item = f.as_dict(one, place, 'Send {"role": "user", "content": "..."}.')
        kind = item.get("type", "message" if "role" in item else None)
        if kind == "item_reference" or (kind is None and "id" in item):
            number = f.as_text(item.get("id"), f"{place}.id", "Send the id of the item.")
            if number.startswith("rs_"):
                continue  # reasoning, which is never stored
            item = stored.item(number, place)
            kind = item["type"]
        known = ("message", "function_call", "function_call_output", "reasoning", "item_reference")
        match f.as_one_of(kind, f"{place}.type", known):
            case "message":
                messages.append(_message(item, place))
                open_turn = messages[-1]["role"] == "assistant"
            case "function_call":
                call = _call(item, place)
                if open_turn:  # one turn of the model: its text, and its calls
                    last = messages[-1]
                    messages[-1] = {**last, "tool_calls": [*last.get("tool_calls", ()), call]}
                else:
                    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                open_turn = True
            case "function_call_output":
                result, images = _result(item, place)
                messages.append(result)
                pictured += images
                open_turn = False
        following = items[n + 1] if n + 1 < len(items) else None
        if pictured and not (is_dict(following) and following.get("type") == "function_call_output"):
            messages.append({"role": "user", "content": pictured})  # results must follow their calls directly
            pictured = []


def _message(item: Mapping[str, Any], place: str) -> Message:
    role = f.as_one_of(item.get("role"), f"{place}.role", _ROLES)
    content = item.get("content")
    if isinstance(content, str):
        return {"role": role, "content": content}
    return {"role": role, "content": f.as_content(_parts(content, f"{place}.content"))}


def _parts(value: Any, place: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for n, one in enumerate(f.as_list(value, place, "Send a text, or a list of parts.")):
        part, where = f.as_dict(one, f"{place}[{n}]", 'Send {"type": "input_text", "text": "..."}.'), f"{place}[{n}]"
        kind = f.as_one_of(part.get("type"), f"{where}.type", (*_TEXTS, "refusal", "input_image"))
        if kind == "input_image":
            found.append(f.image_part(part.get("image_url"), f"{where}.image_url", part.get("detail")))
        else:
            name = "refusal" if kind == "refusal" else "text"
            found.append(f.text_part(f.as_text(part.get(name), f"{where}.{name}", "Send the text of this part.")))
    return found


def _call(item: Mapping[str, Any], place: str) -> dict[str, Any]:
    name = f.as_name(item.get("name"), f"{place}.name", "Send the name of the function.")
    written = f.as_text(item.get("arguments"), f"{place}.arguments", "Send JSON in a text.")
    number = f.as_text(item.get("call_id"), f"{place}.call_id", "Send the call_id of the call.")
    return {"id": number, "type": "function", "function": {"name": name, "arguments": written}}


def _result(item: Mapping[str, Any], place: str) -> tuple[Message, list[dict[str, Any]]]:
    """Return (the result of a call, the images in it)."""
    number = f.as_text(item.get("call_id"), f"{place}.call_id", "Send the call_id of the call.")
    output = item.get("output")
    parts = [f.text_part(output)] if isinstance(output, str) else _parts(output, f"{place}.output")
    text = f.as_content([part for part in parts if part["type"] == "text"])
    pictured = [part for part in parts if part["type"] != "text"]
    return {"role": "tool", "content": text, "tool_call_id": number}, pictured


def _tools(value: Any) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = []
    for n, one in enumerate(f.as_list(value or [], "tools", "Send a list of functions.")):
        tool = f.as_dict(one, f"tools[{n}]", 'Send {"type": "function", "name": ..., "parameters": {...}}.')
        if tool.get("type") != "function":
            problem = f"cannot be {f.shown(tool.get('type'))}: only a model behind OpenAI's Responses knows it"
            raise f.bad(f"tools[{n}].type", problem, "Send functions, and run them in the agent.")
        found.append(f.read_function(tool, f"tools[{n}]"))
    return tuple(found)


def _settings(body: Mapping[str, Any]) -> dict[str, Any]:
    found = f.read_sampling(body)
    if body.get("max_output_tokens") is not None:
        found["max_tokens"] = f.as_whole(body["max_output_tokens"], "max_output_tokens", 1)
    included = f.as_list(body.get("include") or [], "include", "Send a list of texts.")
    if "message.output_text.logprobs" in included:
        found["logprobs"] = True
    text = f.as_dict(body.get("text") or {}, "text", 'Send {"format": {...}}.')
    if (form := _format(text.get("format"))) is not None:
        found["response_format"] = form
    extra: dict[str, Any] = {}
    if text.get("verbosity") is not None:
        extra["verbosity"] = f.as_text(text["verbosity"], "text.verbosity", "Send low, medium or high.")
    reasoning = f.as_dict(body.get("reasoning") or {}, "reasoning", 'Send {"effort": "low"}.')
    if reasoning.get("effort") is not None:
        extra["reasoning_effort"] = f.as_text(reasoning["effort"], "reasoning.effort", "Send low, medium or high.")
    if body.get("parallel_tool_calls") is not None:
        extra["parallel_tool_calls"] = f.as_flag(body["parallel_tool_calls"], "parallel_tool_calls")
    if body.get("tool_choice") is not None:
        extra["tool_choice"] = _choice(body["tool_choice"])
    return {**found, "extra": extra} if extra else found


def _format(value: Any) -> Mapping[str, Any] | None:
    if value is None:
        return None
    form = f.as_dict(value, "text.format", 'Send {"type": "json_object"}.')
    kind = f.as_one_of(form.get("type"), "text.format.type", ("text", "json_object", "json_schema"))
    if kind != "json_schema":
        return None if kind == "text" else {"type": kind}
    f.as_name(form.get("name"), "text.format.name", "Send a name for the schema.")
    f.as_dict(form.get("schema"), "text.format.schema", "Send a JSON Schema.")
    kept = {name: form[name] for name in ("name", "description", "schema", "strict") if form.get(name) is not None}
    return {"type": kind, "json_schema": kept}


def _choice(value: Any) -> str | dict[str, Any]:
    if not isinstance(value, dict):
        return f.as_one_of(value, "tool_choice", ("none", "auto", "required"))
    f.as_one_of(value.get("type"), "tool_choice.type", ("function",))
    return f.choose_function(f.as_name(value.get("name"), "tool_choice.name", "Send the name of a function."))

"""Reads fields of a request. An invalid field is `Refused` with its place and what to send instead."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import MAX_TOKENS, Message, Response
from workbench_external.gateway.asks import Refused

#: Number of pieces to stream a complete answer in.
PIECES = 4
#: Maximum stop strings, and maximum answers of one request.
MAX_STOPS, MAX_SAMPLES = 64, 128


def bad(place: str, problem: str, instead: str) -> Refused:
    """Return the refusal of a field. place: `messages[0].content`; problem: "must be a text"; instead: a sentence."""
    return Refused(400, "bad_request", f"{place} {problem}. {instead}", field=place)


def as_dict(value: Any, place: str, instead: str) -> dict[str, Any]:
    if not is_dict(value):
        raise bad(place, "must be an object", instead)
    return value


def as_list(value: Any, place: str, instead: str) -> list[Any]:
    if not is_list(value):
        raise bad(place, "must be a list", instead)
    return value


def as_text(value: Any, place: str, instead: str) -> str:
    if not isinstance(value, str):
        raise bad(place, "must be a text", instead)
    return value


def as_name(value: Any, place: str, instead: str) -> str:
    if not as_text(value, place, instead):
        raise bad(place, "must not be empty", instead)
    return value


def as_whole(value: Any, place: str, least: int, most: int = MAX_TOKENS) -> int:
    if type(value) is not int or not least <= value <= most:
        raise bad(place, f"must be a whole number from {least} to {most}", f"Send, say, {max(1, least)}.")
    return value


def as_number(value: Any, place: str, least: float, most: float) -> float:
    known = type(value) in (int, float) and least <= value <= most
    if not known or not math.isfinite(value):
        raise bad(place, f"must be a number from {least:g} to {most:g}", f"Send, say, {most / 2:g}.")
    return float(value)


def as_flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise bad(place, "must be true or false", "Send true or false, without quotes.")
    return value


def as_one_of(value: Any, place: str, known: Iterable[str]) -> str:
    words = [*known]
    if not isinstance(value, str) or value not in words:
        raise bad(place, f"cannot be {shown(value)} here", f"Send one of: {', '.join(words)}.")
    return value


def shown(value: Any) -> str:
    """Return a value of the request, short enough for a message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def refuse_set(body: Mapping[str, Any], fields: Mapping[str, str]) -> None:
    """Raise Refused if a field is set that matters and would be ignored. fields: what to send instead, by name."""
    for name, instead in fields.items():
        if body.get(name) not in (None, False, [], {}):
            raise bad(name, "is not served by this gateway", instead)


def read_sampling(body: Mapping[str, Any], max_temperature: float = 2.0) -> dict[str, Any]:
    """Read temperature and top_p, which the three APIs have in common."""
    found: dict[str, Any] = {}
    if body.get("temperature") is not None:
        found["temperature"] = as_number(body["temperature"], "temperature", 0.0, max_temperature)
    if body.get("top_p") is not None:
        found["top_p"] = as_number(body["top_p"], "top_p", 0.0, 1.0)
    return found


def read_stops(value: Any, place: str) -> tuple[str, ...]:
    stops = as_list([value] if isinstance(value, str) else value, place, 'Send, say, ["END"].')
    if len(stops) > MAX_STOPS:
        raise bad(place, f"has {len(stops)} texts", f"Send at most {MAX_STOPS}.")
    return tuple(as_name(stop, f"{place}[{n}]", 'Send, say, ["END"].') for n, stop in enumerate(stops))


def read_function(value: Any, place: str, parameters: str = "parameters") -> dict[str, Any]:
    """Convert an object with name, description and parameters to a tool in the form of chat completions."""
    tool = as_dict(value, place, 'Send, say, {"name": "add", "parameters": {"type": "object", "properties": {}}}.')
    function: dict[str, Any] = {"name": as_name(tool.get("name"), f"{place}.name", "Send the name of the function.")}
    if tool.get("description") is not None:
        function["description"] = as_text(tool["description"], f"{place}.description", "Send what the tool does.")
    if tool.get(parameters) is not None:
        function["parameters"] = as_dict(tool[parameters], f"{place}.{parameters}", "Send a JSON Schema.")
    if tool.get("strict") is not None:
        function["strict"] = as_flag(tool["strict"], f"{place}.strict")
    return {"type": "function", "function": function}


def choose_function(name: str) -> dict[str, Any]:
    """Return the tool_choice that requires one function."""
    return {"type": "function", "function": {"name": name}}


def image_part(url: Any, place: str, detail: Any = None) -> dict[str, Any]:
    """Return an image as a part of a message's content. url: http(s) or a data URI."""
    address = as_text(url, place, "Send https://... or data:image/png;base64,...")
    if not address.startswith(("https://", "http://", "data:image/")):
        raise bad(place, "is not an address of an image", "Send https://... or data:image/png;base64,...")
    image = {"url": address}
    if detail is not None:
        image["detail"] = as_text(detail, f"{place} (detail)", "Send auto, low or high.")
    return {"type": "image_url", "image_url": image}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def as_content(parts: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the content of a message: one text, with a line for each part, unless there is an image."""
    if any(part["type"] != "text" for part in parts):
        return [*parts]
    return "\n".join(part["text"] for part in parts)


def make_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)


def calls_with_ids(response: Response, messages: Sequence[Message], sample: int = 0) -> list[dict[str, str]]:
    """Return the tool calls of an answer as {id, name, arguments}, arguments as JSON.

    A missing or repeated id is derived from the conversation: the agent sends it back, and a resumed run must see the
    same request.
    """
    found: list[dict[str, str]] = []
    for place, call in enumerate(response.tool_calls):
        number, arguments = str(call.get("id") or ""), call.get("arguments")
        if not number or any(number == other["id"] for other in found):
            said = json.dumps([*map(dict, messages)], default=str, sort_keys=True)
            number = "call_" + hashlib.sha256(f"{sample} {place} {said}".encode()).hexdigest()[:24]
        written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str)
        found.append({"id": number, "name": str(call.get("name", "")), "arguments": written})
    return found


def pieces_of(text: str) -> list[str]:
    """Split a text into a few pieces, none of them empty."""
    size = max(16, -(-len(text) // PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]

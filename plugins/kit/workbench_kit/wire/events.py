"""Convert an answer that came as a stream of events, requested or not, to one body."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from workbench.base.text import LINE_END
from workbench.base.type_guards import dicts_in, is_dict, is_list
from workbench.errors import LMError

_DONE = "[DONE]"
_ENCODED_DONE = json.dumps(_DONE)
#: Fields of a chunk that apply to the whole answer.
_OF_ANSWER = ("usage", "error", "model", "service_tier")


def is_stream(raw: bytes) -> bool:
    """Return True for a body of events: it begins with a field of one, which JSON never does."""
    return raw.lstrip(b"\xef\xbb\xbf \r\n").startswith((b"data:", b"event:", b":", b"id:", b"retry:"))


def read_events(raw: bytes) -> dict[str, Any] | None:
    """Return the body that the answer would have had in one piece; None if it did not come as a stream.

    Raises LMError: `broken` for a stream that ends before its answer, `bad_body` for events of another form.
    """
    if (events := parse_events(raw)) is None:
        return None
    found = _joined([event for event in events if is_dict(event)])
    if found.get("error"):
        return found
    if not found["choices"]:
        raise LMError("bad_body", "status 200 with a stream that holds no answer")
    if _DONE not in events and not found["choices"][0].keys() & {"finish_reason", "error"}:
        raise LMError("broken", "the stream ended before the answer did", status=200)
    return found


def parse_events(raw: bytes) -> list[Any] | None:
    """Return the events of a stream, each as its JSON, or `[DONE]`; None if it is no stream. Raise
    LMError("bad_body")."""
    if not is_stream(raw):
        return None
    text = raw.decode("utf-8", "replace").lstrip("\ufeff \r\n")
    lines = LINE_END.split(text) if "\r" in text else text.split("\n")
    lines = [line[5:].strip() for line in lines if line.startswith("data:")]
    told = [line if line != _DONE else _ENCODED_DONE for line in lines if line]
    try:
        events = json.loads(f"[{','.join(told)}]")  # in one, since each call of the parser costs as much as an event
    except (ValueError, RecursionError) as error:
        raise LMError("bad_body", f"status 200 with an unreadable stream ({error})") from None
    if len(events) != len(told):
        raise LMError("bad_body", "status 200 with an unreadable stream (an event that is not one value)")
    return events


def _joined(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    logprobs: list[Any] = []
    calls = StreamedCalls()
    fields: dict[str, list[Any]] = {"content": [""]}
    begun = False
    for event in events:
        for name in _OF_ANSWER:
            if event.get(name):
                found[name] = event[name]
        choices = event.get("choices")
        for one in choices if is_list(choices) else ():
            if not is_dict(one) or one.get("index"):
                continue  # of several answers, only the first
            begun = True
            if is_dict(told := one.get("logprobs")):
                logprobs += dicts_in(told.get("content"))
            for name in ("finish_reason", "error"):
                if one.get(name):
                    choice[name] = one[name]
            delta = one.get("delta") or one.get("message")
            for name, value in delta.items() if is_dict(delta) else ():
                if name == "tool_calls":
                    deque(calls.add(value), maxlen=0)
                elif value is not None and name != "role":
                    fields.setdefault(name, []).append(value)
    message = {"role": "assistant", **{name: _whole(pieces) for name, pieces in fields.items()}}
    if made := calls.whole():
        message["tool_calls"] = made
    choice |= {"logprobs": {"content": logprobs}} if logprobs else {}
    return {**found, "choices": [{**choice, "message": message}] if begun else []}


def _whole(pieces: list[Any]) -> Any:
    """Join the pieces of a value: of texts one text, of lists of parts one list; of anything else the last."""
    with suppress(TypeError):
        return "".join(pieces)
    parts = [[{"type": "text", "text": piece}] if isinstance(piece, str) else piece for piece in pieces if piece]
    return [part for piece in parts for part in piece] if all(map(is_list, parts)) else pieces[-1]


class StreamedCalls:
    """The tool calls of a stream, whose arguments come in pieces. begun: each call so far, and its arguments."""

    def __init__(self) -> None:
        self.begun: list[tuple[dict[str, Any], list[str]]] = []
        self._last: dict[int | None, int] = {}  # by the server's number of a call, ours

    def add(self, pieces: Any) -> Iterator[tuple[int, str]]:
        """Yield (the place of a call, the addition to its arguments) for each piece."""
        for piece in dicts_in(pieces):
            index, told = piece.get("index"), piece.get("function")
            number, function = index if isinstance(index, int) else None, told if is_dict(told) else {}
            id_, name, place = piece.get("id"), function.get("name"), self._last.get(number)
            own = None if place is None else self.begun[place][0].get("id")
            # Some servers send the same number for all calls, or none.
            if place is None or (id_ != own if id_ and own else name and not id_):
                place = self._last[number] = len(self.begun)
                self.begun.append(({"type": "function", "id": None, "function": {}}, []))
            call, arguments = self.begun[place]
            call |= {key: value for key, value in piece.items() if key not in ("index", "function") and value}
            call["function"] |= {key: value for key, value in function.items() if key != "arguments" and value}
            given = function.get("arguments") or ""
            arguments.append(written := given if isinstance(given, str) else json.dumps(given))
            yield place, written

    def whole(self) -> list[dict[str, Any]]:
        return [{**c, "function": {**c["function"], "arguments": "".join(given)}} for c, given in self.begun]

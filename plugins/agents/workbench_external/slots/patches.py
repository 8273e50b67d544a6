"""Replaces texts in the requests of an agent, and counts texts that no longer match."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from workbench_external.config import ExternalConfig, Slot
from workbench_external.gateway import Ask
from workbench_external.slots.discover import SYSTEM, at, parameters_of, schema_of, texts_of
from workbench_external.slots.template import HOLE, SHORTEST_INPUT, Template, fill, mark_inputs
from workbench_kit.answers import as_text

Message = Mapping[str, Any]
#: Characters to show of a text that matched no slot.
_SHOWN = 80


@dataclass
class Patched:
    """A request to send.

    used: the slots that matched. missed: places with slots of which none matched, each with the text found there.
    """

    messages: list[Message]
    tools: list[Mapping[str, Any]]
    response_format: Mapping[str, Any] | None = None
    lm: str | dict[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    used: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)


class Patches:
    """The replacements from the settings of a node. outputs: of its signature, for demos."""

    def __init__(self, config: ExternalConfig, outputs: Sequence[str]):
        self.config, self.outputs = config, outputs
        self.by_place: dict[str, list[tuple[str, Slot, Template]]] = {}
        for name, slot in (config.slots or {}).items():
            self.by_place.setdefault(slot.in_, []).append((name, slot, Template(slot.match)))

    def apply(self, ask: Ask, inputs: Mapping[str, Any]) -> Patched:
        """Replace the texts of an agent's request, on a row with these inputs."""
        patched = Patched([], [])
        patched.tools = [self._tool(tool, patched) for tool in ask.tools]
        patched.response_format = self._format(ask.settings.get("response_format"), patched)
        patched.messages = [self._message(message, patched) for message in ask.messages]
        if "user" in self.by_place and not any(name in patched.used for name, _, _ in self.by_place["user"]):
            texts = (text for m in ask.messages if m.get("role") == "user" for text in texts_of(m.get("content")))
            own = (text for text in texts if HOLE.sub("", mark_inputs(text, inputs)).strip())  # more than an input
            patched.missed += [f"user: {text[:_SHOWN]}" for text in islice(own, 1)]
        if ask.native is not None and ask.native.api == "completions":  # one text, without a place for more
            more = {"demos": self.config.demos, "instructions": self.config.instructions}
            patched.missed += [f"{name}: a completion has no place for them" for name, value in more.items() if value]
            return patched
        self._insert_demos(patched, ask.messages, inputs)
        self._append_instructions(patched)
        return patched

    def _message(self, message: Message, patched: Patched) -> Message:
        role = str(message.get("role"))
        places = ("system",) if role in SYSTEM else ("user", "turn") if role == "user" else ("turn",)
        if role not in (*SYSTEM, "user", "assistant") or self.by_place.keys().isdisjoint(places):
            return message
        content = message.get("content")
        if isinstance(content, list):
            parts = [
                {**part, "text": self._text(str(part.get("text", "")), places, patched)}
                if part.get("type") == "text"
                else part
                for part in content
            ]
            return {**message, "content": parts}
        return {**message, "content": self._text(content, places, patched)} if isinstance(content, str) else message

    def _text(self, text: str, places: Sequence[str], patched: Patched) -> str:
        for name, slot, template in (known for place in places for known in self.by_place.get(place, ())):
            if slot.part or (values := template.match(text)) is None:
                continue
            _use(name, slot, patched)
            return self._fill(slot, text, values, places, patched)
        if (cut := self._parts(text, places, patched)) is not None:
            return cut
        if "system" in places:
            patched.missed.append(f"system: {text[:_SHOWN]}")
        return text

    def _parts(self, text: str, places: Sequence[str], patched: Patched) -> str | None:
        """Replace the parts of a text that are slots; None if it has none."""
        parts = [known for place in places for known in self.by_place.get(place, ()) if known[1].part]
        found, write = list[tuple[int, int, str]](), _writer_in(text) if parts else str
        for name, slot, template in parts:
            for start, end, values in template.find_all(text):
                if all(end <= other[0] or start >= other[1] for other in found):
                    _use(name, slot, patched)
                    found.append((start, end, self._fill(slot, text[start:end], values, places, patched, write)))
        for start, end, new in sorted(found, reverse=True):
            text = text[:start] + new + text[end:]
        return text if found else None

    def _fill(
        self,
        slot: Slot,
        text: str,
        values: Mapping[str, str],
        places: Sequence[str],
        patched: Patched,
        write: Callable[[str], str] = str,
    ) -> str:
        """Return the new text of a slot. The content of its holes may be a text of the agent, too. write: encodes the
        text for its place."""
        inner = {name: self._parts(value, places, patched) for name, value in values.items()}
        filled = {name: value if (new := inner[name]) is None else new for name, value in values.items()}
        if filled == values and (slot.text is None or slot.text == slot.match):
            return text
        return fill(slot.match if slot.text is None else write(slot.text), filled)

    def _tool(self, tool: Mapping[str, Any], patched: Patched) -> Mapping[str, Any]:
        """Return a tool with its descriptions replaced."""
        return {**tool, "function": self._describe(tool.get("function", {}), ("tool", "parameter"), patched)}

    def _format(self, form: Mapping[str, Any] | None, patched: Patched) -> Mapping[str, Any] | None:
        """Return the form of an answer with the descriptions of its schema replaced."""
        schema = schema_of(form) if "field" in self.by_place else None
        if form is None or schema is None:
            return form
        described = self._describe(schema, ("field",), patched)
        return {**form, "json_schema": {**form["json_schema"], "schema": described["parameters"]}}

    def _describe(self, function: Mapping[str, Any], places: Sequence[str], patched: Patched) -> dict[str, Any]:
        function = dict(function)
        for name, slot, template in (known for place in places for known in self.by_place.get(place, ())):
            if slot.name != function.get("name"):
                continue
            path = _path_of(slot, function)
            told = None if path is None else at(function, path).get("description")
            new = _replaced(slot, template, str(told or ""))
            if path is None or new is None:
                patched.missed.append(f"{name}: {str(told)[:_SHOWN]}")
                continue
            patched.used.append(name)
            if new != (told or ""):
                function = _described(function, path, new)
        return function

    def _append_instructions(self, patched: Patched) -> None:
        if not (more := self.config.instructions):
            return
        for place, message in enumerate(patched.messages):
            if message.get("role") in SYSTEM and isinstance(message.get("content"), str):
                patched.messages[place] = {**message, "content": f"{message['content']}\n\n{more}"}
                return
        patched.messages.insert(0, {"role": "system", "content": more})

    def _insert_demos(self, patched: Patched, sent: Sequence[Message], inputs: Mapping[str, Any]) -> None:
        """Insert demos as turns before the first message with an input, in the form of that message."""
        if not self.config.demos:
            return
        for place, (message, before) in enumerate(zip(patched.messages, sent, strict=True)):
            text, own = message.get("content"), before.get("content")
            if message.get("role") != "user" or not isinstance(text, str) or not isinstance(own, str):
                continue
            ask = self._as_question(own, text, inputs)
            if ask is None:
                continue
            turns: list[Message] = []
            for demo in self.config.demos:
                turns += [{"role": "user", "content": ask(demo)}, {"role": "assistant", "content": self._answer(demo)}]
            patched.messages[place:place] = turns
            return
        patched.missed.append("demos: no user message contains an input")

    def _as_question(self, own: str, text: str, inputs: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str] | None:
        """Return a function that writes a demo's question in the form of a message; None if the message has no input.

        A slot's template has the places of the inputs. Without one they are found by their values, unless these are so
        short that they may occur by chance.

        Args:
            own: the message as the agent sent it.
            text: as it is sent on.
        """
        for _, slot, template in self.by_place.get("user", ()):
            found = template.match(own)
            if found is not None and any(not name.isdigit() for name in found):
                words, kept = slot.match if slot.text is None else slot.text, found
                return lambda demo: fill(
                    words, {n: v if n.isdigit() else as_text(demo.get(n, "")) for n, v in kept.items()}
                )
        values = {as_text(value): name for name, value in inputs.items()}
        long = [value for value in values if len(value) >= SHORTEST_INPUT or value == text]
        pattern = "|".join(rf"(?<!\w){re.escape(value)}(?!\w)" for value in sorted(long, key=len, reverse=True))
        if not pattern or not re.search(pattern, text):
            return None
        return lambda demo: re.sub(pattern, lambda held: as_text(demo.get(values[held[0]], "")), text)

    def _answer(self, demo: Mapping[str, Any]) -> str:
        if len(self.outputs) == 1:
            return as_text(demo.get(self.outputs[0], ""))
        return "\n".join(f"{name}: {as_text(demo[name])}" for name in self.outputs if name in demo)


def _writer_in(text: str) -> Callable[[str], str]:
    """Return a function that encodes a part of a message: as in a JSON string, if the message is JSON."""
    try:
        is_json = text.lstrip()[:1] in ("{", "[") and isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        is_json = False
    # If neither occurs, the spaces decide: `json.dumps` escapes other letters, `JSON.stringify` does not.
    ascii_only = text.isascii() and ("\\u" in text or '": ' in text)
    return (lambda new: json.dumps(new, ensure_ascii=ascii_only)[1:-1]) if is_json else str


def _replaced(slot: Slot, template: Template, told: str) -> str | None:
    """Replace the text of a slot in a description; None if it does not match."""
    text = slot.match if slot.text is None else slot.text
    if not slot.part:
        values = template.match(told)
        return None if values is None else fill(text, values)
    pieces = [*template.find_all(told)]
    for start, end, values in reversed(pieces):
        told = told[:start] + fill(text, values) + told[end:]
    return told if pieces else None


def _use(name: str, slot: Slot, patched: Patched) -> None:
    """Note that a slot matched, and use its settings for the call."""
    patched.used.append(name)
    for setting in ("lm", "temperature", "max_tokens"):
        if getattr(slot, setting) is not None:
            setattr(patched, setting, getattr(slot, setting))


def _path_of(slot: Slot, function: Mapping[str, Any]) -> Sequence[str] | None:
    """Return the path of a slot's description in a tool, or a schema in that form; None if it has none."""
    if slot.in_ == "tool":
        return ()
    if slot.in_ == "field" and not slot.parameter:
        return ("parameters",)
    return parameters_of(function).get(slot.parameter)


def _described(schema: Mapping[str, Any], path: Sequence[str], text: str) -> dict[str, Any]:
    """Return the schema with another description at a path. The given one is not changed."""
    if not path:
        return {**schema, "description": text}
    return {**schema, path[0]: _described(schema[path[0]], path[1:], text)}

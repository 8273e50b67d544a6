"""Finds replaceable texts of an agent, in its calls on some rows and in its folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from workbench.base.files import NEVER_COPIED
from workbench.workflow import CallRecord, Span
from workbench_external.slots.template import HOLE, find_frame, find_template, mark_inputs

#: Files that agents read as instructions.
FILES = ("SKILL.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md", ".cursorrules")
SYSTEM = ("system", "developer")
#: Letters outside the holes that a message or file must have to be worth rewriting.
_WORTH = 12
#: Maximum depth of nested parameters.
_DEEPEST = 24
#: Maximum number of different texts to compare.
_MAX = 64


class _Said(NamedTuple):
    """A text, with holes for the inputs of its row, and the row."""

    text: str
    row: int


def find_slots(runs: Sequence[Sequence[Span]], folder: Path | None, appended: str = "") -> dict[str, dict[str, Any]]:
    """Return the slots of an agent, by name, in the form of its settings.

    Args:
        runs: for each of some rows, the spans of its node.
        folder: the agent's own; its files are read.
        appended: the text that our settings append to its system messages.
    """
    calls = [
        (row, span.inputs, call)
        for row, spans in enumerate(runs)
        for span in spans
        for call in span.calls
        if call.role == "task" and call.number  # calls for embeddings have no number
    ]
    system = _mark_varying(
        [
            (text.removesuffix(appended).rstrip() if appended else text, row, inputs)
            for row, inputs, call in calls
            for text in _texts(call, SYSTEM)
        ]
    )
    user = [_Said(mark_inputs(text, inputs), row) for row, inputs, call in calls for text in _texts(call, ("user",))]
    found: dict[str, dict[str, Any]] = {}
    # A text with an input varies, in whatever form it has it.
    asking = [text for text in _templates(user) if HOLE.search(text)]
    for place, texts in (("system", _templates(system)), ("user", asking)):
        for number, text in enumerate(texts, 1):
            found[place if number == 1 else f"{place}_{number}"] = {"in": place, "match": text, "text": text}
    rows = len({row for row, _, _ in calls})
    for number, text in enumerate(_example_turns(calls, rows), 1):
        found[f"turn_{number}"] = {"in": "turn", "match": text, "text": text}
    found |= _tool_slots(call for _, _, call in calls)
    found |= _field_slots(call for _, _, call in calls)
    return found | _file_slots(folder)


def _mark_varying(said: Sequence[tuple[str, int, Mapping[str, Any]]]) -> list[_Said]:
    """Mark the holes in system messages. A message that is equal in several rows contains no input, even if one of its
    words is an input: a category in the list of categories."""
    rows: dict[str, set[int]] = {}
    for text, row, _ in said:
        rows.setdefault(mark_inputs(text, {}), set()).add(row)
    found: list[_Said] = []
    for text, row, inputs in said:
        plain = mark_inputs(text, {})
        found.append(_Said(plain if len(rows[plain]) > 1 else mark_inputs(text, inputs), row))
    return found


def _texts(call: CallRecord, roles: Sequence[str]) -> Iterator[str]:
    for message in call.messages:
        if message.get("role") in roles:
            yield from texts_of(message.get("content"))


def texts_of(content: Any) -> Iterator[str]:
    """Yield the texts of a message: its content, or the texts among its parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (str(part.get("text", "")) for part in content if part.get("type") == "text")


def _templates(said: Iterable[_Said]) -> list[str]:
    """Return a minimal list of texts with holes that matches all texts, in the order of their first use.

    Similar texts of different rows are merged. Two texts of one row are not, unless nearly equal: an agent has several
    prompts with a common beginning. Texts that differ in each row, such as a prompt with retrieved passages, are merged
    if they begin and end alike.
    """
    groups: list[dict[str, set[int]]] = []
    for text, row in said:
        group = next((g for g in groups if text in g), None) or next((g for g in groups if _joins(text, row, g)), None)
        if group is not None:
            group.setdefault(text, set()).add(row)
        elif len(groups) < _MAX:
            groups.append({text: {row}})
    framed = _framed(groups)
    found = [template.text for group in framed if (template := find_template([*group]) or find_frame([*group]))]
    return [text for text in found if is_worth(HOLE.sub("", text))]


def is_worth(text: str) -> bool:
    """Return True if a text has enough letters to be worth rewriting."""
    return len(re.sub(r"\W", "", text)) >= _WORTH


def _framed(groups: Sequence[dict[str, set[int]]]) -> list[dict[str, set[int]]]:
    """Join groups whose texts are from different rows, and begin and end alike."""
    found: list[dict[str, set[int]]] = []
    for group in groups:
        frames = [
            (sum(map(len, frame.constants)), place)
            for place, other in enumerate(found)
            if _differs(group) and _differs(other) and not _rows(group) & _rows(other)
            if (frame := find_frame([*other, *group])) is not None
        ]
        if frames:
            found[max(frames)[1]] |= group
        else:
            found.append(dict(group))
    return found


def _differs(group: Mapping[str, set[int]]) -> bool:
    """Return True if no text of a group was sent in two rows."""
    return all(len(rows) == 1 for rows in group.values())


def _rows(group: Mapping[str, set[int]]) -> set[int]:
    return {row for rows in group.values() for row in rows}


def _joins(text: str, row: int, group: Mapping[str, set[int]]) -> bool:
    template = find_template([*group, text]) if len(group) < _MAX else None
    if template is None:
        return False
    together = any(row in rows for rows in group.values())
    constant = sum(map(len, template.constants))
    return not together or constant >= 0.9 * max(map(len, (*group, text)))


def _example_turns(calls: Sequence[tuple[int, Mapping[str, Any], CallRecord]], rows: int) -> list[str]:
    """Return messages that are equal in all rows, from before the one with the inputs; none for a single row."""
    seen: dict[str, set[int]] = {}
    for row, inputs, call in calls:
        for message in call.messages:
            text = message.get("content")
            if message.get("role") in SYSTEM or not isinstance(text, str):
                continue
            if message.get("role") not in ("user", "assistant") or mark_inputs(text, inputs) != mark_inputs(text, {}):
                break
            seen.setdefault(text, set()).add(row)
    return [text for text, of in seen.items() if rows > 1 and len(of) == rows and len(text) >= _WORTH]


def _tool_slots(calls: Iterable[CallRecord]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for function in (tool.get("function", {}) for call in calls for tool in call.tools):
        name = str(function.get("name", ""))
        slot, text = f"tool_{_word(name)}", str(function.get("description") or "")
        if any(known["in"] == "tool" and known["name"] == name for known in found.values()):
            continue
        slot = _free(slot, found)
        found[slot] = {"in": "tool", "name": name, "match": text, "text": text}
        for parameter, path in parameters_of(function).items():
            if told := str(at(function, path).get("description") or ""):
                place = {"in": "parameter", "name": name, "parameter": parameter}
                found[_free(f"{slot}_{_word(parameter)}", found)] = {**place, "match": told, "text": told}
    return found


def _field_slots(calls: Iterable[CallRecord]) -> dict[str, dict[str, Any]]:
    """Return slots for the descriptions in schemas of structured answers, such as a Pydantic model and its fields."""
    found: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    for form in (schema_of(call.response_format) for call in calls):
        if form is None or form["name"] in seen:
            continue
        seen.add(form["name"])
        for field, path in {"": ("parameters",), **parameters_of(form)}.items():
            if told := str(at(form, path).get("description") or ""):
                name = _free("_".join(filter(None, ("field", _word(field or form["name"])))), found)
                found[name] = {"in": "field", "name": form["name"], "parameter": field, "match": told, "text": told}
    return found


def schema_of(response_format: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the schema of a structured answer, in the form of a tool; None for an answer of another form."""
    given: Any = (response_format or {}).get("json_schema")
    if not isinstance(given, Mapping) or not isinstance(given.get("schema"), Mapping):
        return None
    return {"name": str(given.get("name") or ""), "parameters": given["schema"]}


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, with a number if it is taken."""
    return next(n for n in (name, *(f"{name}_{k}" for k in range(2, 10_000))) if n not in taken)


def parameters_of(function: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the paths of the schemas of a tool's parameters, by name. Parts of a parameter are `place.city`, or
    `Place.city` if the schema is a named one."""
    found: dict[str, tuple[str, ...]] = {}

    def walk(schema: Any, path: tuple[str, ...], name: str) -> None:
        if not isinstance(schema, Mapping) or len(path) > _DEEPEST:
            return
        for holder in ("properties", "$defs"):
            parts = schema.get(holder)
            for part, inner in parts.items() if isinstance(parts, Mapping) else ():
                here = f"{name}.{part}" if name and holder == "properties" else str(part)
                if holder == "properties" and isinstance(inner, Mapping):
                    found.setdefault(here, (*path, holder, part))
                walk(inner, (*path, holder, part), here)
        walk(schema.get("items"), (*path, "items"), name)

    walk(function.get("parameters"), ("parameters",), "")
    return found


def at(function: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    """Return the value at a path of `parameters_of`."""
    for part in path:
        function = function[part]
    return function


def _file_slots(folder: Path | None) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(p for name in FILES for p in (folder.rglob(name) if folder is not None else ())):
        if folder is None or NEVER_COPIED & {*path.relative_to(folder).parts}:
            continue
        if path.is_file() and not path.is_symlink():
            place, text = path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8", errors="replace")
            if is_worth(text):
                found[f"file_{_word(place)}"] = {"in": "file", "name": place, "match": text, "text": text}
    return found


def _word(name: str) -> str:
    """Return a name as part of an address."""
    return re.sub(r"\W+", "_", name).strip("_").lower()

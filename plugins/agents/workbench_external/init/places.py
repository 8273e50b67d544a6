"""The places of an input in an agent's requests, and of the answer in its output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from workbench.errors import NodeError
from workbench.workflow import Field
from workbench_external.exchange import inputs_as_json, json_of
from workbench_external.init.columns import LABELS
from workbench_external.init.witness import Outcome
from workbench_external.slots.template import HOLE, SHORTEST_INPUT, mark_inputs
from workbench_kit.answers import as_text, convert

Form = Callable[[Any], str]

_KEY, _TAG = re.compile(r"""[{,\n]\s*[\\"'`]*(\w+)[\\"'`]*\s*:"""), re.compile(r"<(\w+)>")
#: Keys next to an object's answer.
_REASONS = {
    "reason",
    "reasoning",
    "rationale",
    "explanation",
    "thought",
    "thoughts",
    "summary",
    "confidence",
    "analysis",
}
#: Maximum keys and tags of an answer to try.
_MAX = 12


def find_arrived(outcome: Outcome, main: Collection[str] = ()) -> set[str]:
    """Return the inputs whose values are in the agent's requests, in any form.

    main: those of them with the text, in which a short value of another input, such as an id, may occur by chance.
    """
    first = {name: value for name, value in outcome.inputs.items() if name in main}
    texts = [HOLE.sub("", mark_inputs(text, first)) for text in outcome.texts] if first else outcome.texts
    found = {name for name in first if any(_holds(text, name, first[name]) for text in outcome.texts)}
    others = {name: value for name, value in outcome.inputs.items() if name not in first}
    return found | {name for name, value in others.items() if any(_holds(text, name, value) for text in texts)}


def find_constant(outcome: Outcome, other: Outcome, main: Collection[str]) -> set[str]:
    """Return the inputs of a row whose values are also in the requests for another row with other values: a prompt that
    lists the answers contains each of them.

    main: those with the text, in which such a value may occur by chance.
    """
    texts = [mark_inputs(text, {name: other.inputs[name] for name in main}) for text in other.texts]
    apart = (name for name in outcome.inputs if name not in main and outcome.inputs[name] != other.inputs[name])
    return {name for name in apart if any(_holds(HOLE.sub("", text), name, outcome.inputs[name]) for text in texts)}


def _holds(text: str, name: str, value: Any) -> bool:
    if len(as_text(value).strip()) < SHORTEST_INPUT:
        return re.search(rf"(?<!\w){re.escape(as_text(value).strip())}(?!\w)", text) is not None
    return mark_inputs(text, {name: value}) != mark_inputs(text, {})


def has_whole_json(outcome: Outcome) -> bool:
    """Return True if the agent sent the JSON of its inputs unchanged: it takes them for a text."""
    whole = inputs_as_json(outcome.inputs).decode()
    return any(whole in text for text in outcome.texts)


def forms_of_answer(outcome: Outcome, known: Sequence[str]) -> Iterator[tuple[str, Form]]:
    """Yield (description, form) of answers that a prompt may ask for in words: a JSON object, or tags.

    known: possible names of its keys.
    """
    said = "\n".join(outcome.texts)
    keys = [key for key in dict.fromkeys([*_KEY.findall(said), *known]) if key not in outcome.inputs][:_MAX]
    yield "as JSON", lambda label: json.dumps(dict.fromkeys(keys, label), default=str)
    if tags := list(dict.fromkeys(_TAG.findall(said)))[:_MAX]:
        yield "in tags", lambda label: "".join(f"<{tag}>{as_text(label)}</{tag}>\n" for tag in tags)


def find_answer(outcome: Outcome, label: Any, field: Field) -> tuple[str, str] | None:
    """Return (the setting `output`, how it was found) for the place of the label in the output; None if not found."""
    printed = outcome.printed.strip()
    if _same(printed, label):
        return "text", "it printed the answer and nothing else"
    if printed and _same(printed.splitlines()[-1], label):
        return "line", "the answer was the last line that it printed"
    if (path := _find_in_json(printed, label, field.name)) is not None:
        return path, f"the answer was in the JSON that it printed{f', at {path[5:]}' if path[5:] else ''}"
    for name, content in outcome.left.items():
        if _same(content, label) or (name.endswith(".json") and _find_in_json(content, label, field.name) == "json"):
            return f"file:{name}", "it left the answer in that file"
    for output, text in (("line", printed.rpartition("\n")[2]), ("text", printed)):
        if _is_read(text, label, field):
            return output, f"the answer was among the words that it printed: {text[:60]!r}"
    return None


def _same(text: Any, label: Any) -> bool:
    one, other = as_text(text).strip(), as_text(label).strip()
    if one.casefold() == other.casefold():
        return True
    try:
        return float(one) == float(other)
    except ValueError:
        return isinstance(label, list | dict) and _loaded(one) == label


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _find_in_json(printed: str, label: Any, name: str) -> str | None:
    """Return `json`, or `json:PATH`, for the label in a JSON value."""
    try:
        value = json_of(printed, [name]) if printed[-1:] in "}]" else None
    except NodeError:
        return None
    paths = [path for path, held in _walk(value) if path and _same(held, label)]
    if not paths:
        return None
    best = min(
        paths, key=lambda path: (path[-1] != name, path[-1].lower() not in LABELS, path[-1] in _REASONS, len(path))
    )
    return "json" if best == (name,) else f"json:{'.'.join(best)}"


def _walk(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, value
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in parts if len(path) < 6 else ():
        yield from _walk(inner, (*path, str(key)))


def _is_read(text: str, label: Any, field: Field) -> bool:
    """Return True if the label can be read from a longer text, by the rules of its type."""
    if not field.closed:
        return as_text(label).strip() in text
    try:
        return _same(convert(field, text)[0], label)
    except NodeError:
        return False

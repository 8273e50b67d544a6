"""The reader of models' answers, as typed values.

    parse, convert      an answer by the outputs of a signature, or by one of them (`typed`)
    conclusions         where an answer says its result: labels, boxes, tags, `the answer is`
    choices             allowed values and truth values; never a guess
    numbers             numbers of all countries
    json_text           JSON as models write it
    grades              what judges give
    code                what fences hold

Thoughts are taken off before (`workbench.lm.split_thoughts`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from workbench.errors import NodeError
from workbench.kit.answers.call_bodies import known_name, make_call, read_expressions, unwrapped
from workbench.kit.answers.call_parser import UNREADABLE, Reading, answer_text, correction, read_text
from workbench.kit.answers.choices import PARTICLE, TRUTH, choices_of
from workbench.kit.answers.code import find_code
from workbench.kit.answers.conclusions import SPACELESS, find_object, split_fields
from workbench.kit.answers.grades import read_grade, read_score
from workbench.kit.answers.json_text import find_keyed, load_loose, read_object, read_objects, read_values
from workbench.kit.answers.numbers import find_numbers, normalise, read_number
from workbench.kit.answers.shapes import object_shape
from workbench.kit.answers.typed import as_json, as_text, convert, first_values
from workbench.workflow import Field, Signature

__all__ = [
    "PARTICLE",
    "SPACELESS",
    "load_loose",
    "Reading",
    "UNREADABLE",
    "answer_text",
    "correction",
    "read_text",
    "known_name",
    "make_call",
    "read_expressions",
    "unwrapped",
    "TRUTH",
    "as_json",
    "as_text",
    "choices_of",
    "convert",
    "find_code",
    "find_keyed",
    "find_numbers",
    "find_object",
    "normalise",
    "object_shape",
    "parse",
    "read_fields",
    "read_grade",
    "read_score",
    "read_number",
    "read_object",
    "read_objects",
    "read_values",
    "split_fields",
]


def parse(signature: Signature, text: str, cut: bool = False) -> tuple[dict[str, Any], bool]:
    """Parse an answer into (outputs, loose). loose: whether a value was found in plain text, not after its label.

    cut: whether the answer ended at max_tokens; then free text is incomplete, and short values must be whole.
    Raises NodeError("unparsed"), or NodeError("cut") for an answer that was.
    """
    try:
        return _parse(signature, text, cut)
    except NodeError as error:
        if not cut or error.kind != "unparsed":
            raise
        raise NodeError("cut", f"the answer was cut at max_tokens, and {error}") from None


def _parse(signature: Signature, text: str, cut: bool) -> tuple[dict[str, Any], bool]:
    parts, values, read = read_fields(text, [field.name for field in signature.outputs]), dict[str, Any](), False
    for field in signature.outputs:
        if field.name in parts:
            values[field.name], loose = convert(field, parts[field.name])
        elif field.closed:
            values[field.name], loose = convert(field, text)[0], True  # one plain reading of the whole answer
        else:
            raise NodeError("unparsed", f"no line '{field.name}: ...' in the answer: {text[:200]!r}")
        read = read or loose
        if cut and (not field.closed and field is signature.outputs[-1]):
            raise NodeError("cut", f"the answer was cut at max_tokens: {text[:200]!r}")
        if cut and field.closed and not _is_whole(field, values[field.name], text):
            raise NodeError("cut", f"the answer was cut at max_tokens, maybe within a value: {text[:200]!r}")
    return values, read


def read_fields(text: str, names: Sequence[str]) -> dict[str, str]:
    """The texts of fields: those of an object that has them all, else those behind their labels."""
    if (found := _read_whole_object(text, names)) is not None:
        return {name: as_text(value) for name, value in found.items()}
    return split_fields(text, names)


def _read_whole_object(text: str, names: Sequence[str]) -> dict[str, Any] | None:
    """The outputs in an answer that is one JSON object of them; of several outputs, also with words around it."""
    bare = text.strip()
    if "{" not in bare or (len(names) == 1 and not re.match(r"(?s)(?:```\w*\s*)?\{.*\}\s*(?:```)?\Z", bare)):
        return None
    return next((found for value, *_ in first_values(bare) if (found := find_object(value, names)) is not None), None)


def _is_whole(field: Field, value: Any, text: str) -> bool:
    """Return True if a value in a cut answer is certainly complete: `12` at the end may be the beginning of `125`."""
    end = text.rstrip().lower()
    if not field.allowed:
        return not end[-1:].isdigit()
    said = as_text(value).lower()
    return not end.endswith(said) or not any(
        (other := as_text(v).lower()) != said and other.startswith(said) for v in field.allowed
    )

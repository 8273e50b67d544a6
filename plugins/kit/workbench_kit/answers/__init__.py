"""The reader of models' answers, as typed values.

    parse, convert      an answer by the outputs of a signature, or by one of them (`typed`)
    conclusions         places where an answer states its result: labels, boxes, tags, `the answer is`
    choices             allowed values and truth values; never a guess
    numbers             numbers of all countries
    json_text           JSON as models write it
    grades              grades by judges
    guess               the type of answers, by those of some rows
    equality            comparison of an answer with the value of a row
    code                contents of fences

Thoughts are removed before (`workbench.lm.split_thoughts`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from workbench.errors import NodeError
from workbench.workflow import Field, Signature
from workbench_kit.answers.call_bodies import (
    Reading as Reading,
    read_call as read_call,
    read_expressions as read_expressions,
)
from workbench_kit.answers.call_parser import (
    UNREADABLE as UNREADABLE,
    answer_text as answer_text,
    correction as correction,
    read_text as read_text,
)
from workbench_kit.answers.choices import PARTICLE as PARTICLE, TRUTH as TRUTH, plain as plain
from workbench_kit.answers.code import find_code as find_code
from workbench_kit.answers.conclusions import (
    SPACELESS as SPACELESS,
    find_object as find_object,
    split_fields as split_fields,
)
from workbench_kit.answers.equality import is_same as is_same, read_truth as read_truth
from workbench_kit.answers.grades import read_grade as read_grade, read_score as read_score
from workbench_kit.answers.guess import AnswerType as AnswerType, guess_type as guess_type
from workbench_kit.answers.json_text import (
    find_keyed as find_keyed,
    load_loose as load_loose,
    read_objects as read_objects,
    read_values as read_values,
)
from workbench_kit.answers.numbers import read_number as read_number
from workbench_kit.answers.rubrics import choose_scale as choose_scale, find_scales as find_scales
from workbench_kit.answers.scales import UNREAD as UNREAD, Scale as Scale
from workbench_kit.answers.shapes import object_shape as object_shape
from workbench_kit.answers.tool_names import (
    known_name as known_name,
    wire_name as wire_name,
    wire_names as wire_names,
)
from workbench_kit.answers.typed import (
    as_json as as_json,
    as_text as as_text,
    convert as convert,
    first_values as first_values,
)


def parse(signature: Signature, text: str, cut: bool = False) -> tuple[dict[str, Any], bool]:
    """Parse an answer into (outputs, loose). loose: whether a value was found in plain text, not after its label.

    cut: whether the answer ended at max_tokens; then free text is incomplete, and short values must be whole.
    Raises NodeError("unparsed"), or NodeError("cut") for an answer that was.
    """
    fields, values, read = signature.outputs, dict[str, Any](), False
    parts = read_fields(text, [field.name for field in fields])
    if signature.reasons_first and parts and not parts.get(fields[0].name):  # it answered without reasoning
        values[fields[0].name], fields = "", fields[1:]
    try:
        for field in fields:
            if field.name not in parts and not field.closed:
                raise NodeError("unparsed", f"no line '{field.name}: ...' in the answer: {text[:200]!r}")
            values[field.name], loose = convert(field, parts.get(field.name, text))
            read = read or loose or field.name not in parts
    except NodeError as error:
        raise NodeError("cut", f"the answer was cut at max_tokens, and {error}") if cut else error from None
    if cut and not (fields[-1].closed and all(_is_whole(one, values[one.name], text) for one in fields if one.closed)):
        raise NodeError("cut", f"the answer was cut at max_tokens, maybe within a value: {text[:200]!r}")
    return values, read


def _is_whole(field: Field, value: Any, text: str) -> bool:
    """Return True if a value in a cut answer is certainly complete: `12` at the end may be the beginning of `125`."""
    end = text.rstrip().lower()
    if not field.allowed:
        return not end[-1:].isdigit()
    said, others = as_text(value).lower(), [as_text(one).lower() for one in field.allowed]
    return not end.endswith(said) or not any(one != said and one.startswith(said) for one in others)


def read_fields(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of fields: from an object that has them all, else those after their labels.

    The object of one field must be the whole answer; that of several may have words around it.
    """
    bare = text.strip()
    if {*bare} & {*"{|"} and (len(names) > 1 or re.match(r"(?s)(?:```\w*\s*)?\{.*\}\s*(?:```)?\Z", bare)):
        for value, *_ in first_values(bare):
            if (found := find_object(value, names)) is not None:
                return {name: as_text(one) for name, one in found.items()}
    return split_fields(text.replace("[[ ## completed ## ]]", ""), names)

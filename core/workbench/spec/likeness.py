"""Whether an argument of a tool call may be the value that a rule means, however it is spelled.

A rule that denies must not be got round by another spelling: `5.0` for `5`, `"ADMIN"` for `admin`, `["admin"]` for
`admin`, JSON within a text. So where it cannot be told, a value counts as the one that is meant.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from workbench.type_guards import is_dict, is_list

_TRUE, _FALSE = frozenset({"true", "yes", "on", "y", "t"}), frozenset({"false", "no", "off", "n", "f"})
_NOTHING = frozenset({"", "null", "none", "nil", "undefined"})
_DIGITS = 400  # a text that writes a longer number is not worked out


def may_equal(value: Any, wanted: Any) -> bool:
    """Whether a tool might take `value` for `wanted`: equal as values, as numbers, or as texts but for case, blanks and
    compatible forms of characters. Values of unlike kinds may be equal."""
    if is_dict(wanted) or is_list(wanted):
        return _may_equal_nested(from_json(value), wanted)
    if is_dict(value) or is_list(value):
        return True  # a list that holds it, say
    if isinstance(wanted, str):
        return any(_folded(text) == _folded(wanted) for text in _texts(value)) or _same_number(value, wanted)
    if wanted is None:
        return value is None or (isinstance(value, str) and _folded(value) in _NOTHING)
    number = as_number(value)
    return number is None or number == as_number(wanted)


def surely_equal(value: Any, wanted: Any) -> bool:
    """Whether both are of one kind, and equal. A truth value is no number."""
    alike = type(value) is type(wanted) or {type(value), type(wanted)} <= {int, float}
    return alike and bool(value == wanted)


def as_number(value: Any) -> Fraction | None:
    """The exact number that a value is or writes, as 1 and 0 for what says true and false; None for anything else."""
    if isinstance(value, bool | int):
        return Fraction(value)
    if isinstance(value, float):
        return Fraction(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    text = _folded(value).replace("_", "").strip("\"'")
    if text in _TRUE or text in _FALSE:
        return Fraction(text in _TRUE)
    try:
        if text[:2] in ("0x", "0o", "0b"):
            return Fraction(int(text, 0))
        number = Decimal(text)
    except (InvalidOperation, ValueError):
        return None
    return Fraction(number) if number.is_finite() and abs(number.adjusted()) <= _DIGITS else None


def from_json(value: Any) -> Any:
    """A text that writes an object or a list of JSON, as that; anything else as it is."""
    if not isinstance(value, str) or value.strip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def plain_texts(text: str) -> list[str]:
    """The forms of a text that a pattern is tried on: as it is, without compatible forms and invisible characters, and
    without blanks around it."""
    plain = _without_tricks(text)
    return list(dict.fromkeys([text, plain, plain.strip()]))


def _may_equal_nested(value: object, wanted: object) -> bool:
    if is_list(value) and is_list(wanted):
        return all(any(may_equal(item, one) for item in value) for one in wanted)
    if is_dict(value) and is_dict(wanted):
        return all(key in value and may_equal(value[key], wanted[key]) for key in wanted)
    return True


def _same_number(value: Any, wanted: str) -> bool:
    number = as_number(wanted)
    return number is not None and number == as_number(value)


def _texts(value: Any) -> Iterator[str]:
    """How a tool may write a value as a text."""
    if value is None:
        yield from _NOTHING
    else:
        yield str(value)
    if isinstance(value, str):
        yield value.strip().strip("\"'")


def _folded(text: str) -> str:
    return _without_tricks(text).casefold().strip()


def _without_tricks(text: str) -> str:
    """Wide and other compatible forms as their plain ones, and no characters without a look of their own."""
    return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) not in ("Cf", "Cc", "Mn"))

"""Comparison of tool arguments with values of rules, in any spelling.

Another spelling must not evade a rule that denies: `5.0` for `5`, `"ADMIN"` for `admin`, `["admin"]` for `admin`, JSON
within a text. So in doubt, a value counts as equal. A text is compared as it is and decoded once, in each way that
tools decode texts. Text that is encoded twice or in base64, and another name of the same thing, such as `admin/`, is
another value.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from html import unescape
from typing import Any
from urllib.parse import unquote

from workbench.base.type_guards import is_dict, is_list

_TRUE, _FALSE = frozenset({"true", "yes", "on", "y", "t"}), frozenset({"false", "no", "off", "n", "f"})
_NOTHING = frozenset({"", "null", "none", "nil", "undefined"})
_FILLERS = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # invisible letters
_SPACE = re.compile(r"\s")
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\u\{([0-9a-fA-F]{1,5})\}")
_DIGITS = 400  # longer numbers in texts are not parsed


def may_equal(value: Any, wanted: Any) -> bool:
    """Return True if a tool might take `value` for `wanted`: equal as values, as numbers, or as texts ignoring case,
    blanks and compatible forms of characters. Values of different kinds may be equal."""
    value = from_json(value)
    if is_dict(wanted) or is_list(wanted):
        return _may_equal_nested(value, wanted)
    if value is not None and not isinstance(value, str | int | float):
        return True  # such as a list that contains it, or an object of the tool's own
    if isinstance(wanted, str):
        return any(_folded(text) == _folded(wanted) for text in _texts(value)) or _same_number(value, wanted)
    if wanted is None:
        return value is None or (isinstance(value, str) and _folded(value) in _NOTHING)
    number = as_number(value)
    return number is None or number == as_number(wanted)


def as_number(value: Any) -> Fraction | None:
    """Return the exact number that a value is or spells, with true and false as 1 and 0; None for any other value."""
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
    """Parse a text that is a JSON object or list; return any other value unchanged. An object with a repeated key is
    also unchanged: readers disagree on which of its values counts."""
    if not isinstance(value, str) or value.strip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError):
        return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def plain_texts(text: str) -> list[str]:
    """Return the forms of a text for a pattern to match: unchanged, decoded, without compatible forms and invisible
    characters, with each blank as a space, and stripped."""
    forms = _decoded(text)
    forms += [_SPACE.sub(" ", form) for form in forms]
    plain = [_without_tricks(form) for form in forms]
    return list(dict.fromkeys([*forms, *plain, *(form.strip() for form in plain)]))


def _decoded(text: str) -> list[str]:
    """Return a text unchanged, decoded once as a URL, as HTML and as a program's literal, and up to a NUL."""
    literal = _ESCAPE.sub(lambda found: chr(int(next(filter(None, found.groups())), 16)), text)
    return list(dict.fromkeys([text, unquote(text), unescape(text), literal, text.partition("\0")[0]]))


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
    """Yield the texts that a tool may write a value as."""
    if value is None:
        yield from _NOTHING
    else:
        yield str(value)
    if isinstance(value, str):
        yield value.strip().strip("\"'")
        yield from _decoded(value)
        if value.strip().startswith('"'):
            with suppress(ValueError):
                yield str(json.loads(value))


def _folded(text: str) -> str:
    # Via uppercase, which dotless i shares with i; dotted capital I comes back with a mark.
    return _without_tricks(_without_tricks(text).upper().casefold()).strip()


def _without_tricks(text: str) -> str:
    """Replace wide and other compatible forms by plain ones, and drop invisible characters."""
    plain = unicodedata.normalize("NFKC", text)
    return "".join(c for c in plain if unicodedata.category(c) not in ("Cf", "Cc", "Mn") and c not in _FILLERS)

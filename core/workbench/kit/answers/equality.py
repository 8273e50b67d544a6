"""Equality of an answer and the value of a row: texts as people see them, numbers by their value."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import Any

from workbench.base.text import without_unseen
from workbench.kit.answers.json_text import load_loose

#: A number as JSON writes it. `007` and `1_000` are texts, such as ids. Nobody has one of more digits in its exponent.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d{1,9})?")


def is_same(a: Any, b: Any) -> bool:
    """Return True if two values are equal. A text also equals the number or truth value that it spells, and, as the
    second one, the list or object whose JSON it is."""
    if isinstance(a, bool) or isinstance(b, bool):
        return str(a).strip().lower() == str(b).strip().lower()
    if isinstance(a, str) and isinstance(b, str):
        return _canonical(a) == _canonical(b)
    if isinstance(a, str | int | float) and isinstance(b, str | int | float):
        spelled = [without_unseen(str(one)).strip() for one in (a, b)]
        return all(map(_NUMBER.fullmatch, spelled)) and Decimal(spelled[0]) == Decimal(spelled[1])
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(b, str) and isinstance(a, list | dict):  # in a cell of a table, a list is a text
        b = load_loose(b)
        return isinstance(b, list | dict) and is_same(a, b)
    return a == b


def _canonical(text: str) -> str:
    """A text as Unicode composes it, with line ends of one kind, and without characters that nobody sees."""
    return without_unseen(unicodedata.normalize("NFC", text.replace("\r\n", "\n"))).strip()

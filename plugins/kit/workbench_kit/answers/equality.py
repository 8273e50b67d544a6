"""Equality of an answer and the value of a row: texts as people see them, numbers by their value."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import Any

from workbench.base.text import without_unseen
from workbench_kit.answers.choices import TRUTH, plain
from workbench_kit.answers.json_text import load_loose

#: A number as JSON writes it. `007` and `1_000` are texts, such as ids. Nobody has one of more digits in its exponent.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d{1,9})?")


def is_same(a: Any, b: Any) -> bool:
    """Return True if an answer is a row's value. A text also equals the number or truth value that it spells; and of
    the row the list or object whose JSON it is, and what stands for a truth value, as 1 and yes."""
    if isinstance(a, bool) or isinstance(b, bool):
        truth = read_truth(b) if isinstance(a, bool) and not isinstance(b, bool) else None
        return str(a).strip().lower() == str(b if truth is None else truth).strip().lower()
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


def read_truth(value: Any) -> bool | None:
    """A value as the truth value that it stands for, as tables store it: 1, 0.0, "1", "yes"; None for others."""
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    return TRUTH.whole.get(plain(value).removesuffix(".0")) if isinstance(value, str) else None


def _canonical(text: str) -> str:
    """A text as Unicode composes it, with line ends of one kind, and without characters that nobody sees."""
    return without_unseen(unicodedata.normalize("NFC", text.replace("\r\n", "\n"))).strip()

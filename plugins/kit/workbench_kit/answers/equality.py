"""Equality of an answer and the value of a row: texts as they are displayed, numbers by value."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import Any

from workbench.base.text import without_unseen
from workbench_kit.answers.choices import TRUTH, plain
from workbench_kit.answers.json_text import load_loose

#: A JSON number. `007` and `1_000` are texts, such as ids. No real number has more digits in its exponent.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d{1,9})?")


def is_same(a: Any, b: Any) -> bool:
    """Return True if an answer is a row's value. A text also equals the number or truth value that it spells.

    A text in the row may also be the JSON of a list or object, or stand for a truth value, as 1 and yes.
    """
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
    """Return the truth value of a table's 1, 0.0, "1" or "yes"; None for other values."""
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    return TRUTH.whole.get(plain(value).removesuffix(".0")) if isinstance(value, str) else None


def _canonical(text: str) -> str:
    """Return a text in Unicode's composed form, with one kind of line ends and without invisible characters."""
    return without_unseen(unicodedata.normalize("NFC", text.replace("\r\n", "\n"))).strip()

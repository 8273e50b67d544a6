"""Metrics on texts."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

from workbench.task import Score
from workbench_metrics.base import FieldMetric, short, verdict


class ExactMatch(FieldMetric):
    """1 if both values are the same, else 0. Texts are compared without spaces around them."""

    def compare(self, given: Any, wanted: Any) -> Score:
        return verdict(_same(given, wanted), given, wanted)


class NormalizedMatch(FieldMetric):
    """1 if both texts are the same without case, punctuation, articles and extra spaces (the SQuAD recipe)."""

    def compare(self, given: Any, wanted: Any) -> Score:
        return verdict(normalized(given) == normalized(wanted), given, wanted)


class Contains(FieldMetric):
    """1 if the prediction contains the row's value as whole words, without regard to case.

    Numbers are whole, too: 3 is not in 3.14. In scripts without spaces between words (Chinese, Japanese, Thai), where
    a word has no edge to see, any place counts.
    """

    def compare(self, given: Any, wanted: Any) -> Score:
        text = str(wanted).strip()
        if not text:
            raise ValueError(f"the row's '{self.target}' is empty, and everything contains it")
        before = r"(?<![^\W_])(?<!\d[.,])" if text[0].isdigit() else r"(?<![^\W_])"
        after = r"(?![^\W_])(?![.,]\d)" if text[-1].isdigit() else r"(?![^\W_])"
        pattern = f"{'' if _spaceless(text[0]) else before}{re.escape(text)}{'' if _spaceless(text[-1]) else after}"
        return verdict(re.search(pattern, str(given), flags=re.IGNORECASE) is not None, given, wanted)


class F1(FieldMetric):
    """Token F1 of the normalised texts, as in SQuAD: harmonic mean of precision and recall over words."""

    def compare(self, given: Any, wanted: Any) -> Score:
        a, b = normalized(given).split(), normalized(wanted).split()
        if not a or not b:
            return Score(float(a == b), None if a == b else f"expected {short(wanted)}, got {short(given)}")
        common = sum((Counter(a) & Counter(b)).values())
        if not common:
            return Score(0.0, f"expected {short(wanted)}, got {short(given)}")
        precision, recall = common / len(a), common / len(b)
        value = 2 * precision * recall / (precision + recall)
        return Score(value, None if value == 1 else f"expected {short(wanted)}, got {short(given)}")


def normalized(value: Any) -> str:
    """Lower case, no punctuation, no articles, single spaces."""
    text = "".join(c for c in str(value).lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def _spaceless(char: str) -> bool:
    return "\u0e00" <= char <= "\u0eff" or "\u3040" <= char <= "\u9fff" or "\U00020000" <= char <= "\U0003ffff"


def _same(a: Any, b: Any) -> bool:
    """Equal values; a text is also equal to the number or the truth value that it writes."""
    if isinstance(a, bool) or isinstance(b, bool):
        return str(a).strip().lower() == str(b).strip().lower()
    if (
        isinstance(a, str) != isinstance(b, str)
        and isinstance(a, str | int | float)
        and isinstance(b, str | int | float)
    ):
        try:
            return float(a) == float(b)
        except ValueError:
            return False
    return a.strip() == b.strip() if isinstance(a, str) and isinstance(b, str) else a == b

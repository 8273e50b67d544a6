"""Metrics on texts."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

from workbench.task import Score
from workbench_metrics.base import FieldMetric, score_match, shorten


class ExactMatch(FieldMetric):
    """1 if both values are equal, else 0. Spaces around texts are ignored."""

    def compare(self, given: Any, wanted: Any) -> Score:
        return score_match(_same(given, wanted), given, wanted)


class NormalizedMatch(FieldMetric):
    """1 if both texts are equal up to case, punctuation, articles and extra spaces (the SQuAD recipe)."""

    def compare(self, given: Any, wanted: Any) -> Score:
        return score_match(normalize(given) == normalize(wanted), given, wanted)


class Contains(FieldMetric):
    """1 if the prediction contains the row's value as whole words, ignoring case.

    Numbers must be whole, too: 3 is not in 3.14. In scripts without spaces between words (Chinese, Japanese, Thai), any
    position counts.
    """

    def compare(self, given: Any, wanted: Any) -> Score:
        text = str(wanted).strip()
        if not text:
            raise ValueError(f"the row's '{self.target}' is empty, which every text contains")
        before = r"(?<![^\W_])(?<!\d[.,])" if text[0].isdigit() else r"(?<![^\W_])"
        after = r"(?![^\W_])(?![.,]\d)" if text[-1].isdigit() else r"(?![^\W_])"
        pattern = f"{'' if _spaceless(text[0]) else before}{re.escape(text)}{'' if _spaceless(text[-1]) else after}"
        return score_match(re.search(pattern, str(given), flags=re.IGNORECASE) is not None, given, wanted)


class F1(FieldMetric):
    """Token F1 of the normalised texts, as in SQuAD: harmonic mean of precision and recall over words."""

    def compare(self, given: Any, wanted: Any) -> Score:
        a, b = normalize(given).split(), normalize(wanted).split()
        if not a or not b:
            return Score(float(a == b), None if a == b else f"expected {shorten(wanted)}, got {shorten(given)}")
        common = sum((Counter(a) & Counter(b)).values())
        if not common:
            return Score(0.0, f"expected {shorten(wanted)}, got {shorten(given)}")
        precision, recall = common / len(a), common / len(b)
        value = 2 * precision * recall / (precision + recall)
        return Score(value, None if value == 1 else f"expected {shorten(wanted)}, got {shorten(given)}")


def normalize(value: Any) -> str:
    """A value as text in lower case, without punctuation and articles, with single spaces."""
    text = "".join(c for c in str(value).lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def _spaceless(char: str) -> bool:
    return "\u0e00" <= char <= "\u0eff" or "\u3040" <= char <= "\u9fff" or "\U00020000" <= char <= "\U0003ffff"


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal. A text also equals the number or truth value that it spells."""
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

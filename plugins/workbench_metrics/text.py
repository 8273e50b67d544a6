"""Metrics on texts."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

from workbench.data import Score
from workbench_metrics.base import FieldMetric, short, verdict


class ExactMatch(FieldMetric):
    """1 if both values are the same, else 0. Texts are compared without spaces around them."""

    def compare(self, given: Any, wanted: Any) -> Score:
        return verdict(_plain(given) == _plain(wanted), given, wanted)


class NormalizedMatch(FieldMetric):
    """1 if both texts are the same without case, punctuation, articles and extra spaces (the SQuAD recipe)."""

    def compare(self, given: Any, wanted: Any) -> Score:
        return verdict(normalized(given) == normalized(wanted), given, wanted)


class Contains(FieldMetric):
    """1 if the prediction contains the row's value as whole words, without regard to case."""

    def compare(self, given: Any, wanted: Any) -> Score:
        pattern = rf"(?<!\w){re.escape(str(wanted).strip())}(?!\w)"
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


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int | float) else value

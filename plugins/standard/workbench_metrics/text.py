"""Metrics on texts."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

from workbench.base.text import without_unseen
from workbench.task import Example, Score
from workbench_kit.answers import PARTICLE, SPACELESS, is_same
from workbench_metrics.base import FieldMetric, score_match, shorten, unreadable
from workbench_metrics.floor import vote_of_nearest

_SPACELESS = re.compile(f"[{SPACELESS}]")
#: Characters that tell answers apart: signs of numbers, between their digits, and in names such as C++ and .NET.
_TELLING = re.compile(
    r"(?<![\w)])[-+](?=\.?\d)|[<>]=?(?=\s?\d)|(?<=\d)[./:-](?=\d)|(?<=\d),(?=\d)(?!\d{3}(?!\d))|(?<=\b[a-z])-(?![\w-])|"
    r"(?<=\w)(?:\+\+?|#)(?![\w+#])|(?<=\w)[<>^@=](?=\w)|(?<!\S)\.(?=[a-z\d])"
)
#: Minus signs and quotes, with their ASCII forms.
_SIGNS = str.maketrans({"\u2212": "-", "\u2018": "'", "\u2019": "'"})


class _Match(FieldMetric):
    """A metric with the scores 1 and 0."""

    def floor(
        self, train: Sequence[Example], rows: Sequence[Example], inputs: Sequence[str]
    ) -> tuple[float, str] | None:
        """Return (score, how) of a vote of the nearest train rows; None if labels are no closed set."""

        def score(row: Any, label: Any) -> float:
            return self(row, {self.field: label}).value

        return vote_of_nearest(train, rows, inputs, self.target, score)


class ExactMatch(_Match):
    """1 if both values are equal, else 0. Spaces around texts are ignored, and JSON in a row's text is its value."""

    def compare(self, given: Any, wanted: Any) -> Score:
        return score_match(is_same(given, wanted), given, wanted)


class NormalizedMatch(_Match):
    """1 if both texts are equal up to case, punctuation, articles and extra spaces (the SQuAD recipe).

    Unlike there, signs and separators of numbers and of names such as C++ count, and so does a text of nothing else.
    """

    def compare(self, given: Any, wanted: Any) -> Score:
        return score_match(normalize(given) == normalize(wanted), given, wanted)


class Contains(FieldMetric):
    """1 if the prediction contains the row's value as whole words, ignoring case.

    Numbers must be whole, too: 3 is neither in 3.14 nor in -3. In scripts without spaces between words (Chinese,
    Japanese, Thai), any position counts.
    """

    def compare(self, given: Any, wanted: Any) -> Score:
        text, within = _spaced(wanted).casefold(), _spaced(given).casefold()
        if not text:
            raise unreadable(self.target, "every text contains an empty one")
        before = r"(?<![^\W_])(?<!\d[.,/])(?<!^[-+])(?<![^\w)][-+])" if text[0].isdigit() else r"(?<![^\W_])"
        after = r"(?![^\W_])(?![.,/]\d)" if text[-1].isdigit() else rf"(?:(?={PARTICLE})|(?![^\W_]|\+\+|#(?!\w)))"
        before, after = ("" if _SPACELESS.match(c) else p for c, p in ((text[0], before), (text[-1], after)))
        found = re.search(f"{before}{re.escape(text)}{after}", within)
        return score_match(found is not None, given, wanted)


class F1(FieldMetric):
    """Token F1 of the normalised texts, as in SQuAD: harmonic mean of precision and recall over words.

    In scripts without spaces between words each character is one.
    """

    def compare(self, given: Any, wanted: Any) -> Score:
        a, b = _words(given), _words(wanted)
        common = sum((Counter(a) & Counter(b)).values())
        if not common:
            return score_match(not a and not b, given, wanted)
        precision, recall = common / len(a), common / len(b)
        value = 2 * precision * recall / (precision + recall)
        return Score(value, None if value == 1 else f"expected {shorten(wanted)}, got {shorten(given)}")


def normalize(value: Any) -> str:
    """Return a value as lower-case text without punctuation and articles, with single spaces."""
    text = _spaced(value).casefold()
    telling = {place for found in _TELLING.finditer(text) for place in range(found.start(), found.end())}
    kept = "".join(c for n, c in enumerate(text) if n in telling or not _is_punctuation(c))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split()) or text


def _words(value: Any) -> list[str]:
    return _SPACELESS.sub(lambda found: f" {found[0]} ", normalize(value)).split()


def _spaced(value: Any) -> str:
    """Return a value as text with single spaces and without compatibility forms; None becomes ""."""
    text = without_unseen(unicodedata.normalize("NFKC", "" if value is None else str(value))).translate(_SIGNS)
    return re.sub("\u2013(?=[\\d.])", "-", " ".join(text.split()))


def _is_punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")

"""Features of texts: their shape, and hashed words and pairs of words.

All values are multiples of 2^-14, so they are the same numbers in single precision, in which the boosting library
compares them with its thresholds.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

Features = dict[int, float]

_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
#: Words counted at each end of a text: a decision has to take less than a millisecond.
MAX_WORDS = 128
#: Characters that are read at each end.
MAX_CHARACTERS = 4000
#: Numbers that describe the shape of a text.
SHAPE = 9
_GRID = 2.0**14


@dataclass(frozen=True)
class FeatureSpace:
    """Where the features of some texts stand: first their shapes, then the extra numbers, then the hashed words.

    Args:
        texts: how many texts there are.
        extras: how many numbers come with them, e.g. the length of a vector.
        dims: buckets of the hashed words.
    """

    texts: int = 1
    extras: int = 0
    dims: int = 2048

    @property
    def size(self) -> int:
        return self.texts * SHAPE + self.extras + self.dims

    def extract(self, texts: Sequence[str], extras: Sequence[float] = ()) -> Features:
        """The features that are not 0, by index. The same word in two texts is two features."""
        found: Features = {}
        first = self.texts * SHAPE + self.extras
        for number, text in enumerate(texts):
            words = split_words(text)
            for i, value in enumerate(_shape(text, words)):
                found[number * SHAPE + i] = value
            previous = b""
            for word in words:
                coded = word.encode("utf-8", "backslashreplace")
                found[first + zlib.crc32(coded, number) % self.dims] = 1.0
                if previous:
                    found[first + zlib.crc32(previous + b" " + coded, number) % self.dims] = 1.0
                previous = coded
        for i, value in enumerate(extras):
            found[self.texts * SHAPE + i] = round(value * _GRID) / _GRID
        return found


def split_words(text: str) -> list[str]:
    """The words, numbers and signs at both ends of a text, in lower case."""
    if len(text) > 2 * MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]} {text[-MAX_CHARACTERS:]}"
    words = _WORD.findall(text.lower())
    return words if len(words) <= 2 * MAX_WORDS else words[:MAX_WORDS] + words[-MAX_WORDS:]


def _shape(text: str, words: Sequence[str]) -> list[float]:
    """Lengths and counts, as logarithms: what makes a task hard is rather twice as much than one more."""
    counts = (
        len(text),
        len(words),
        text.count("\n"),
        sum(word.isdigit() for word in words),
        len(set(words)),
        text.count("?"),
        text.count(","),
        max(map(len, words), default=0),
        sum(not word[0].isalnum() for word in words),
    )
    return [round(math.log2(1 + count) * 64) / 64 for count in counts]

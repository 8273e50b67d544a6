"""The nearest demos for an input, by words: TF-IDF cosine, computed once for a set of demos."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.tfidf import TfIdf


class Nearest:
    """An index over demos by the text of their input fields."""

    def __init__(self, demos: Sequence[Mapping[str, Any]], inputs: Sequence[str]):
        self.inputs = inputs
        self.size, self.index = len(demos), TfIdf([self._bag(d) for d in demos])

    def order(self, values: Mapping[str, Any], count: int) -> list[int]:
        """Indices of the `count` nearest demos, the nearest last: a model heeds most what it read last."""
        scores = self.index.scores(self._bag(values))
        best = sorted(range(self.size), key=lambda i: (-scores.get(i, 0.0), i))[:count]
        return best[::-1]

    def _bag(self, values: Mapping[str, Any]) -> Counter[str]:
        text = " ".join(str(values.get(name, "")) for name in self.inputs).lower()
        words = re.findall(r"\w+", text)
        return Counter(words + [f"{a} {b}" for a, b in zip(words, words[1:], strict=False)])

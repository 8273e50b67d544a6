"""The nearest demos for an input, by words: TF-IDF cosine, computed once for a set of demos."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.kit.searching import TfIdf


class Nearest:
    """An index over demos by the text of their input fields."""

    def __init__(self, demos: Sequence[Mapping[str, Any]], inputs: Sequence[str]):
        self.inputs = inputs
        self.size, self.index = len(demos), TfIdf([self._bag(d) for d in demos])

    def order(self, values: Mapping[str, Any]) -> Iterator[int]:
        """Indices of all demos, the nearest first."""
        scores = self.index.scores(self._bag(values))
        yield from sorted(scores, key=lambda i: (-scores[i], i))
        yield from (i for i in range(self.size) if i not in scores)

    def _bag(self, values: Mapping[str, Any]) -> Counter[str]:
        text = " ".join(str(values.get(name, "")) for name in self.inputs).lower()
        words = re.findall(r"\w+", text)
        return Counter(words + [f"{a} {b}" for a, b in itertools.pairwise(words)])

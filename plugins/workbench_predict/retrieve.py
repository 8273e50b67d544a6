"""The nearest demos for an input, by words: TF-IDF cosine, computed once for a set of demos."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any


class Nearest:
    """An index over demos by the text of their input fields."""

    def __init__(self, demos: Sequence[Mapping[str, Any]], inputs: Sequence[str]):
        self.inputs = inputs
        bags = [self._bag(d) for d in demos]
        seen = Counter(word for bag in bags for word in bag)
        self.idf = {word: math.log(1 + len(bags) / count) for word, count in seen.items()}
        self.by_word: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for index, bag in enumerate(bags):
            norm = math.sqrt(sum((n * self.idf[w]) ** 2 for w, n in bag.items())) or 1.0
            for word, n in bag.items():
                self.by_word[word].append((index, n * self.idf[word] / norm))
        self.size = len(bags)

    def order(self, values: Mapping[str, Any], count: int) -> list[int]:
        """Indices of the `count` nearest demos, the nearest last: a model heeds most what it read last."""
        scores = [0.0] * self.size
        for word, n in self._bag(values).items():
            for index, weight in self.by_word.get(word, ()):
                scores[index] += n * self.idf[word] * weight
        best = sorted(range(self.size), key=lambda i: (-scores[i], i))[:count]
        return best[::-1]

    def _bag(self, values: Mapping[str, Any]) -> Counter[str]:
        text = " ".join(str(values.get(name, "")) for name in self.inputs).lower()
        words = re.findall(r"\w+", text)
        return Counter(words + [f"{a} {b}" for a, b in zip(words, words[1:], strict=False)])

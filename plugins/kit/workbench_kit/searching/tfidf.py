"""TF-IDF cosine similarity between bags of words, with an index over a fixed set of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence


class TfIdf:
    """An index over bags, each a count by word or other token."""

    def __init__(self, bags: Sequence[Mapping[str, int]]):
        seen = Counter(word for bag in bags for word in bag)
        self.idf = {word: math.log(1 + len(bags) / count) for word, count in seen.items()}
        self.by_word: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for index, bag in enumerate(bags):
            norm = math.sqrt(sum((n * self.idf[w]) ** 2 for w, n in bag.items())) or 1.0
            for word, n in bag.items():
                self.by_word[word].append((index, n * self.idf[word] / norm))

    def scores(self, bag: Mapping[str, int]) -> dict[int, float]:
        """Return cosine similarities by index, only for bags that share a word with this one."""
        found: dict[int, float] = defaultdict(float)
        for word, n in bag.items():
            if word in self.by_word:
                weighted = n * self.idf[word]
                for index, weight in self.by_word[word]:
                    found[index] += weighted * weight
        return found

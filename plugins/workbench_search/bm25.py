"""BM25 over an inverted index.

Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the idf that Lucene
uses, ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative, and its k1 and b.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable

K1, B = 1.2, 0.75


def split_words(text: str) -> list[str]:
    """The words of a text in lower case. Letters and digits of any script count; there are no stop words or stems."""
    return re.findall(r"[^\W_]+", text.lower())


class BM25:
    """An index over documents, each given as its text."""

    def __init__(self, texts: Iterable[str]):
        self.lengths = array("L")
        self.postings: dict[str, tuple[array[int], array[int]]] = {}  # documents and counts, by word
        for number, text in enumerate(texts):
            words = split_words(text)
            self.lengths.append(len(words))
            for word, count in Counter(words).items():
                documents, counts = self.postings.setdefault(word, (array("L"), array("L")))
                documents.append(number)
                counts.append(count)
        self.mean_length = sum(self.lengths) / len(self.lengths) if self.lengths else 0.0

    def idf(self, word: str) -> float:
        """The weight of a word; 0 for one that no document has."""
        if word not in self.postings:
            return 0.0
        having = len(self.postings[word][0])
        return math.log(1 + (len(self.lengths) - having + 0.5) / (having + 0.5))

    def scores(self, query: str) -> dict[int, float]:
        """Scores by document; only of those that share a word with the query. A repeated word counts once."""
        found: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(split_words(query)):
            idf = self.idf(word)
            for number, count in zip(*self.postings.get(word, ((), ())), strict=True):
                norm = K1 * (1 - B + B * self.lengths[number] / self.mean_length)
                found[number] += idf * count * (K1 + 1) / (count + norm)
        return dict(found)

    def search(self, query: str, k: int) -> list[int]:
        """The k best documents, best first; of equal ones the earlier. Fewer where fewer share a word with it."""
        scores = self.scores(query)
        return sorted(scores, key=lambda number: (-scores[number], number))[:k]

"""Search by words: BM25 over texts, by the library bm25s.

Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), as Lucene has it: the idf
is ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative, and the constant factor k1 + 1 is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

K1, B = 1.2, 0.75


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case. Letters and digits of any script count. No stop words, no stemming."""
    return re.findall(r"[^\W_]+", text.lower())


def count_words_and_stems(text: str) -> Counter[str]:
    """Count words and their first four letters, so that `search` matches `searching`. Splits camelCase and
    snake_case."""
    words = split_words(re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text))
    return Counter(words + [f"{word[:4]}*" for word in words if len(word) >= 4])


class WordIndex:
    """An index over texts, identified by their numbers."""

    def __init__(self, texts: Iterable[str]):
        import bm25s

        words = [split_words(text) for text in texts]
        self._index = None
        if any(words):
            self._index = bm25s.BM25(k1=K1, b=B, method="lucene", dtype="float64")
            self._index.index(words, show_progress=False)

    def scores(self, query: str) -> dict[int, float]:
        """Return scores by text, only for texts that share a word with the query. A repeated word counts once."""
        words = list(dict.fromkeys(split_words(query)))
        if self._index is None or not words:
            return {}
        found = self._index.get_scores(words)
        return {int(number): float(found[number]) for number in found.nonzero()[0]}

"""A value function that needs no model: a logistic regression on the words of a position."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

BIAS = "bias"
DISCOUNT = 0.8  # what a score is worth one step before it is reached


def words_of(text: str) -> list[str]:
    """Its different words in lower case; signs of a map count by the line."""
    return sorted(set(re.findall(r"[a-z_]+|[^\sa-z]+", text.lower())))


def estimate(weights: Mapping[str, float], text: str) -> float:
    """How likely the task is done from here, in (0, 1)."""
    odds = weights.get(BIAS, 0.0) + sum(weights.get(word, 0.0) for word in words_of(text))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def fit(
    pairs: Sequence[tuple[str, float]], *, most: int = 200, penalty: float = 1.0, least: int = 2
) -> dict[str, float]:
    """Weights for (text, worth in [0, 1]) pairs, by Newton's steps under an L2 penalty; {} if there is nothing to learn.

    Words in fewer than `least` texts get no weight; of the others the `most` most frequent ones do.
    """
    import numpy as np

    if len({worth for _, worth in pairs}) < 2:
        return {}
    found = [words_of(text) for text, _ in pairs]
    counts = Counter(word for words in found for word in words)
    kept = [w for w, n in sorted(counts.items(), key=lambda c: (-c[1], c[0])) if least <= n < len(pairs)][:most]
    column = {word: i + 1 for i, word in enumerate(kept)}
    x = np.zeros((len(pairs), len(kept) + 1))
    x[:, 0] = 1.0
    for row, words in enumerate(found):
        x[row, [column[w] for w in words if w in column]] = 1.0
    y = np.array([worth for _, worth in pairs])
    w, ridge = np.zeros(len(kept) + 1), penalty * np.eye(len(kept) + 1)
    ridge[0, 0] = 1e-3
    for _ in range(25):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        step = np.linalg.solve((x.T * (p * (1 - p))) @ x + ridge, x.T @ (y - p) - ridge @ w)
        w = w + step
        if float(np.abs(step).max()) < 1e-8:
            break
    return {BIAS: round(float(w[0]), 4), **{word: round(float(w[i]), 4) for word, i in column.items()}}

"""A value function that needs no model: a logistic regression on the words of a position."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from workbench_kit.searching import fit_logistic

BIAS = "bias"
PENALTY = 1.0  # L2, of the weights
DISCOUNT = 0.8  # what a score is worth one step before it is reached


def split_words(text: str) -> list[str]:
    """Its different words in lower case; signs of a map count by the line."""
    return sorted(set(re.findall(r"[a-z_]+|[^\sa-z]+", text.lower())))


def estimate_value(weights: Mapping[str, float], text: str) -> float:
    """Estimate the probability, in (0, 1), that the task is done from here."""
    odds = weights.get(BIAS, 0.0) + sum(weights.get(word, 0.0) for word in split_words(text))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def fit_weights(pairs: Sequence[tuple[str, float]], *, most: int = 200) -> dict[str, float]:
    """Weights for (text, worth in [0, 1]) pairs, under an L2 penalty; {} if there is nothing to learn.

    Words in one text alone get no weight; of the others the `most` most frequent ones do.
    """
    if len({worth for _, worth in pairs}) < 2:
        return {}
    found = [split_words(text) for text, _ in pairs]
    counts = Counter(word for words in found for word in words)
    kept = [w for w, n in sorted(counts.items(), key=lambda c: (-c[1], c[0])) if 2 <= n < len(pairs)][:most]
    rows = [{BIAS: 1.0, **dict.fromkeys(words, 1.0)} for words in found]
    weights = fit_logistic(rows, [worth for _, worth in pairs], [BIAS, *kept], penalty=PENALTY, bias=BIAS)
    return {word: round(w, 4) for word, w in weights.items()}

"""Learned retrieval: the probability that a stored entry helps with a query.

Source: the parametric retriever of Memento (Zhou et al., arXiv 2508.16153): a classifier of pairs (query, case), fitted
to whether the case helped. Departure: a logistic regression on words instead of a fine-tuned encoder, so that it needs
no model, fits in milliseconds, and is a few readable numbers in the workflow file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from workbench_kit.searching import fit_logistic

Features = dict[str, float]
Pair = tuple[Features, float]  # features of (query, entry), and the score of the answer that saw the entry

MIN_SUPPORT = 6  # least pairs that share a word for the word to have its own weight
MAX_FEATURES = 200


@lru_cache(maxsize=65536)
def mask_digits(word: str) -> str:
    """The word with its digits masked, so that what is learned about `topic3` holds for `topic7`."""
    return re.sub(r"\d+", "#", word)


def extract_features(query: Collection[str], entry: Collection[str], relevance: float) -> Features:
    """query and entry: their words. relevance: the lexical score as a share of the best one.

    An entry's utility is not a feature: it is computed from the scores that the fit should explain.
    """
    shared = [word for word in query if word in entry]
    found = {"bias": 1.0, "relevance": relevance, "overlap": len(shared) / max(1, len(query))}
    found.update({f"word {mask_digits(word)}": 1.0 for word in shared})
    return found


def score_pair(weights: Mapping[str, float], pair: Features) -> float:
    """The log-odds that the entry helps, up to the bias."""
    return sum(weights.get(name, 0.0) * value for name, value in pair.items())


def fit_weights(pairs: Sequence[Pair], *, penalty: float = 2.0) -> dict[str, float]:
    """Weights of a logistic regression with an L2 penalty; {} if there is nothing to learn.

    A word has a weight only if enough pairs share it; other words count by relevance and overlap.
    """
    if len(pairs) < 3 * MIN_SUPPORT or len({y for _, y in pairs}) < 2:
        return {}
    support = Counter(name for f, _ in pairs for name in f)
    names = [n for n, c in sorted(support.items(), key=lambda s: (-s[1], s[0])) if c >= MIN_SUPPORT][:MAX_FEATURES]
    weights = fit_logistic([f for f, _ in pairs], [y for _, y in pairs], names, penalty=penalty, bias="bias")
    return {name: round(w, 3) for name, w in weights.items() if abs(w) >= 0.01}

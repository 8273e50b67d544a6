"""A curriculum: training rows that are solved only sometimes are drawn more often."""

from __future__ import annotations

import random
from collections.abc import Sequence


def frontier_weight(solved: float, attempts: float) -> float:
    """Compute 4p(1-p), where p is the share of attempts that solved a row, smoothed by one half-solved attempt.

    It is 1 at p = 1/2, where a row teaches most (Agent0, arXiv 2511.16043), and for a row without attempts.
    """
    share = (solved + 0.5) / (attempts + 1.0)
    return 4.0 * share * (1.0 - share)


def draw_by_weight(rng: random.Random, weights: Sequence[float], count: int) -> list[int]:
    """Draw `count` indices by weight without replacement (Efraimidis and Spirakis 2006)."""
    keys = [rng.random() ** (1.0 / weight) for weight in weights]
    return sorted(range(len(weights)), key=lambda i: (-keys[i], i))[:count]

"""Which training rows are worth a look: those that are solved now and then."""

from __future__ import annotations

import random
from collections.abc import Sequence


def frontier_weight(solved: float, looks: float) -> float:
    """4p(1-p), where p is the share of looks that solved a row, as if half of one more look had: 1 where half of them
    did, or there was none. Such rows teach most (Agent0, arXiv 2511.16043)."""
    share = (solved + 0.5) / (looks + 1.0)
    return 4.0 * share * (1.0 - share)


def draw_by_weight(rng: random.Random, weights: Sequence[float], count: int) -> list[int]:
    """Places of so many weights, drawn by them without putting back (Efraimidis and Spirakis 2006)."""
    keys = [rng.random() ** (1.0 / weight) for weight in weights]
    return sorted(range(len(weights)), key=lambda i: (-keys[i], i))[:count]

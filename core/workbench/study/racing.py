"""Racing: stop candidates early that are clearly worse than the best so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from workbench.base.distributions import signed_rank_p

#: Called after each block with the scores so far, in the order of the examples. True stops the evaluation.
Race = Callable[[Sequence[float]], bool]


def paired_race(reference: Sequence[float], *, p: float = 0.1, least: int = 8) -> Race:
    """Return a race that stops a candidate worse than the reference on the same examples (one-sided Wilcoxon, below p).

    The test is that of Optuna's WilcoxonPruner: signed ranks of the differences, zeros split between the sides. The
    race also stops a candidate that cannot reach the reference's mean even with full marks on all other examples.
    """

    def stop(scores: Sequence[float]) -> bool:
        left = len(reference) - len(scores)
        if math.fsum(scores) + left < math.fsum(reference) - 1e-9:
            return True
        if len(scores) < least:
            return False
        return p_worse(scores, reference) < p

    return stop


def p_worse(scores: Sequence[float], reference: Sequence[float]) -> float:
    """Return the one-sided p-value of the same test for a candidate worse than the reference; 1 if it is not worse."""
    differences = [a - b for a, b in zip(scores, reference, strict=False)]
    if not any(differences) or sum(differences) > 0:
        return 1.0
    return _p_value(tuple(sorted(differences)))


@lru_cache(maxsize=4096)  # differences of 0/1 scores recur
def _p_value(differences: tuple[float, ...]) -> float:
    return signed_rank_p(differences)

"""Search by vectors, and rankings merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

#: The constant of reciprocal rank fusion (Cormack, Clarke and Buettcher 2009).
RANK = 60


def cosines(stored: Sequence[Sequence[float]], query: Sequence[float]) -> list[float]:
    """The cosine of each stored vector with that of a query, both less the mean of the stored ones: vectors of a
    language model's states all point the same way. Rounded to nine digits, so that equal texts tie."""
    import numpy

    store = numpy.array(stored, dtype=float)
    mean = store.mean(0) if len(store) > 1 else numpy.zeros(store.shape[1])
    store, wanted = store - mean, numpy.array(query, dtype=float) - mean
    sizes = numpy.linalg.norm(store, axis=1) * numpy.linalg.norm(wanted)
    found: list[float] = (store @ wanted / numpy.where(sizes > 0, sizes, 1.0)).round(9).tolist()
    return found


def merge_rankings(rankings: Sequence[Iterable[int]]) -> dict[int, float]:
    """Merge rankings: each thing scores the sum of 1 / (60 + its rank) over those that have it. Scores, best first; of
    equal ones that with the lower number."""
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, thing in enumerate(ranking, 1):
            scores[thing] += 1 / (RANK + rank)
    return best_first(scores)


def best_first(scores: Mapping[int, float], most: int | None = None) -> dict[int, float]:
    """The best of scored things in their order; of equal ones that with the lower number comes first."""
    ranked = sorted(scores, key=lambda thing: (-scores[thing], thing))[:most]
    return {thing: scores[thing] for thing in ranked}

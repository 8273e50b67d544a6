"""Search by vectors, and merging of rankings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

#: The constant of reciprocal rank fusion (Cormack, Clarke and Buettcher 2009).
RANK = 60


def cosines(stored: Sequence[Sequence[float]], query: Sequence[float]) -> list[float]:
    """Return the cosine of each stored vector with that of a query, both minus the mean of the stored ones.

    Vectors of a language model's states all point in a similar direction. Rounded to nine digits, so that equal texts
    tie.
    """
    import numpy

    store = numpy.array(stored, dtype=float)
    mean = store.mean(0) if len(store) > 1 else numpy.zeros(store.shape[1])
    store, wanted = store - mean, numpy.array(query, dtype=float) - mean
    sizes = numpy.linalg.norm(store, axis=1) * numpy.linalg.norm(wanted)
    found: list[float] = (store @ wanted / numpy.where(sizes > 0, sizes, 1.0)).round(9).tolist()
    return found


def merge_rankings(rankings: Sequence[Iterable[int]]) -> dict[int, float]:
    """Merge rankings: an item scores the sum of 1 / (60 + its rank) over the rankings that contain it. Returns scores,
    best first; on a tie, the lower number first."""
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, thing in enumerate(ranking, 1):
            scores[thing] += 1 / (RANK + rank)
    return best_first(scores)


def best_first(scores: Mapping[int, float], most: int | None = None) -> dict[int, float]:
    """Return the best scored items in order; on a tie, the lower number first."""
    ranked = sorted(scores, key=lambda thing: (-scores[thing], thing))[:most]
    return {thing: scores[thing] for thing in ranked}

"""Which rows to train on: those solved about half of the time teach most (Agent0, arXiv 2511.16043; WebRL, arXiv
2411.02337).

The record of a row is [successes, rollouts, visits]. The first two decay with each visit, since the policy changes; the
third counts the latest consecutive visits whose rollouts were all alike. Draws depend only on the records and a random
generator, so a resumed run draws the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from workbench_kit.searching import draw_by_weight, frontier_weight

Record = list[float]

#: The least weight of a row (the largest is 1), what is left of its record at each visit, and the consecutive visits
#: with equal rollouts that reduce a row to the least weight. Ours.
FLOOR, MEMORY, PATIENCE = 0.05, 0.5, 2
#: They decide what is learned: a training is continued only with the same ones.
CURRICULUM = {"floor": FLOOR, "memory": MEMORY, "patience": PATIENCE}


def update_record(record: Record | None, scores: Sequence[float]) -> Record:
    """A row's record after a visit. scores: of its rollouts, in [0, 1]."""
    successes, drawn, alike = record or [0.0, 0.0, 0.0]
    if not scores:
        return [successes, drawn, alike]
    return [
        MEMORY * successes + sum(scores),
        MEMORY * drawn + len(scores),
        alike + 1 if max(scores) == min(scores) else 0.0,
    ]


def row_weight(record: Record | None) -> float:
    """A row's weight in draws, in [floor, 1]: 1 at a success rate of 1/2, or without a record."""
    if record is None:
        return 1.0
    successes, drawn, alike = record
    if alike >= PATIENCE:
        return FLOOR
    return FLOOR + (1.0 - FLOOR) * frontier_weight(successes, drawn)


def draw_rows(rng: random.Random, ids: Sequence[str], known: Mapping[str, Record], count: int) -> list[int]:
    """Indices of rows, drawn by weight without replacement."""
    return draw_by_weight(rng, [row_weight(known.get(i)) for i in ids], count)

"""A vote of the nearest labelled rows: k-nearest neighbors by words (TF-IDF), without any model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.kit.prompting import Nearest

#: How many rows may vote; and the rows that are looked at at most, as some data are large.
COUNTS, MOST_ROWS, MOST_TRIED = (1, 3, 5, 9), 2_000, 200
#: Labels are a closed set where each has so many rows of train on average.
ROWS_A_LABEL = 3


def vote_of_nearest(
    train: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    inputs: Sequence[str],
    target: str,
    score: Callable[[Mapping[str, Any], Any], float],
) -> tuple[float, str] | None:
    """(the mean score on rows, what votes in words); None where the labels are no closed set of texts or numbers.

    How many rows vote is chosen on train, each row by the others.

    Args:
        train, rows: labelled rows; only those of train vote.
        inputs, target: the fields that are compared, and that of the label.
        score: of a row, for a label as the answer.
    """
    known = [row for row in train if isinstance(row.get(target), str | int | float)]
    if len(known) > MOST_ROWS:
        known = random.Random("floor").sample(known, MOST_ROWS)
    labels = {row[target] for row in known}
    if len(labels) < 2 or len(known) < ROWS_A_LABEL * len(labels):
        return None
    near = Nearest(known, inputs)

    def vote(row: Mapping[str, Any], k: int) -> Any:
        shown = near.shown(row, k)[::-1]  # the nearest first: of equal counts its label wins
        return Counter(known[i][target] for i in shown).most_common(1)[0][0] if shown else known[0][target]

    tried = known[:MOST_TRIED]
    k = max(COUNTS, key=lambda k: sum(vote(row, k) == row[target] for row in tried))
    found = sum(score(row, vote(row, k)) for row in rows) / len(rows)
    return found, "the label of the nearest train row" if k == 1 else f"a vote of the {k} nearest train rows"

"""A vote of the nearest labelled rows: k-nearest neighbors by words (TF-IDF), without any model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from workbench_kit.prompting import Nearest

#: Maximum number of rows that vote.
COUNTS = (1, 3, 5, 9)
#: Limits that keep the work at about ten seconds: train rows drawn to vote; rows that choose the number of voters; rows
#: to answer, above which there is no floor; leading characters of an input that are compared.
MAX_ROWS, MAX_TRIED, MAX_ANSWERED, MAX_CHARACTERS = 1_000, 200, 2_000, 1_000
#: Labels are a closed set if each one has this many train rows on average.
ROWS_A_LABEL = 3


def vote_of_nearest(
    train: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    inputs: Sequence[str],
    target: str,
    score: Callable[[Mapping[str, Any], Any], float],
) -> tuple[float, str] | None:
    """Return (mean score on labelled rows, description of the voters).

    Returns None if the labels are no closed set of texts or numbers, or for more than `MAX_ANSWERED` rows. The number
    of
    voters is chosen on train: each row is answered by the others.

    Args:
        train, rows: labelled rows; only those of train vote.
        inputs, target: the compared fields, and the label's field.
        score: scores a label as the answer to a row.
    """
    known = [row for row in train if isinstance(row.get(target), str | int | float)]
    rows = [row for row in rows if row.get(target) is not None]
    if len(known) > MAX_ROWS:
        known = random.Random("floor").sample(known, MAX_ROWS)
    labels = {row[target] for row in known}
    if not 0 < len(rows) <= MAX_ANSWERED or len(labels) < 2 or len(known) < ROWS_A_LABEL * len(labels):
        return None

    def text(row: Mapping[str, Any]) -> dict[str, str]:
        return {name: str(row.get(name, ""))[:MAX_CHARACTERS] for name in inputs}

    near = Nearest([text(row) for row in known], inputs)

    def nearest(row: Mapping[str, Any], but: int | None = None) -> list[Any]:
        """Return labels, the nearest row's first. but: the row itself, which does not vote."""
        found = (known[i][target] for i in near.order(text(row)) if i != but)
        return [*islice(found, max(COUNTS))]

    def vote(near: Sequence[Any], k: int) -> Any:
        return Counter(near[:k]).most_common(1)[0][0]  # on equal counts, the nearest label

    tried = [(nearest(row, i), row[target]) for i, row in enumerate(known[:MAX_TRIED])]
    k = max(COUNTS, key=lambda k: sum(vote(near, k) == label for near, label in tried))
    found = sum(score(row, vote(nearest(row), k)) for row in rows) / len(rows)
    return found, "the label of the nearest train row" if k == 1 else f"a vote of the {k} nearest train rows"

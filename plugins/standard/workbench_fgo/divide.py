"""Divide the training rows into parts of about equal size."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from workbench.task import Example


def split_at_random(rows: Sequence[Example], size: int, rng: random.Random) -> list[list[Example]]:
    """Return parts of at most `size` rows, as even as possible."""
    shuffled = rng.sample(list(rows), len(rows))
    parts = max(1, math.ceil(len(rows) / size))
    return [shuffled[i::parts] for i in range(parts)]


def split_by_group(
    rows: Sequence[Example], size: int, rng: random.Random, group: Callable[[Example], Hashable]
) -> list[list[Example]]:
    """Return parts of at most `size` rows with few groups in each: a group is cut only if it fills a part."""
    groups: dict[str, list[Example]] = defaultdict(list)
    for row in rows:
        groups[str(group(row))].append(row)
    pieces = [members[i : i + size] for _, members in sorted(groups.items()) for i in range(0, len(members), size)]
    rng.shuffle(pieces)
    parts: list[list[Example]] = []
    for piece in sorted(pieces, key=len, reverse=True):  # first fit, the largest first
        part = next((p for p in parts if len(p) + len(piece) <= size), None)
        if part is None:
            parts.append(part := [])
        part.extend(piece)
    return parts

"""The importance of settings after a search: how much of the spread of scores each explains by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

#: Trials below which a share is mostly chance, and groups of equal size into which numbers are divided.
MIN_TRIALS, GROUPS = 12, 4


def explain_scores(trials: Sequence[tuple[Mapping[str, Any], float]]) -> dict[str, float]:
    """Return the share of the variance of scores that each parameter explains, 0 to 1, the largest first.

    This is the epsilon squared of a one-way analysis of variance (Kelley 1935), the explained share less what as many
    groups explain by chance. A setting that only matters together with another one has a small share. Empty with fewer
    than MIN_TRIALS trials, or equal scores.

    trials: (parameters, score) of each trial. Parameters that a trial lacks are a group of their own.
    """
    scores = numpy.array([score for _, score in trials], dtype=float)
    n = len(scores)
    if n < MIN_TRIALS or scores.max() - scores.min() < 1e-9:
        return {}
    shares = dict[str, float]()
    for name in dict.fromkeys(name for parameters, _ in trials for name in parameters):
        groups = _groups([parameters.get(name) for parameters, _ in trials])
        within = sum(((scores[groups == one] - scores[groups == one].mean()) ** 2).sum() for one in {*groups.tolist()})
        free = n - len({*groups.tolist()})
        if 0 < free < n - 1:
            shares[name] = max(0.0, 1 - float(within / free / scores.var(ddof=1)))
    return dict(sorted(shares.items(), key=lambda one: -one[1]))


def _groups(values: Sequence[Any]) -> numpy.ndarray[Any, Any]:
    """Return the group of each value: numbers by size, others by equality."""
    if len({*map(repr, values)}) > GROUPS and all(isinstance(v, int | float) for v in values):
        edges = numpy.quantile(values, [place / GROUPS for place in range(1, GROUPS)])
        return numpy.searchsorted(edges, values, side="right")
    return numpy.unique([repr(value) for value in values], return_inverse=True)[1]

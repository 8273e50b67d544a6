"""A small classifier of courses of calls, for mag_v.yaml: a course is judged by those of other questions."""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from pathlib import Path
from statistics import mean
from typing import Any

FEATURES = ("tools", "order", "arguments")


def compare(calls: list[dict[str, Any]], others: list[list[dict[str, Any]]]) -> dict[str, float]:
    """How much the courses of alternate questions agree with this one, on average: the set of tools, their order, and
    the values of arguments, each in [0, 1]. Raises ValueError if there are no others."""
    if not others:
        raise ValueError("no alternate question was written")
    found = [
        (
            share({one["name"] for one in calls}, {one["name"] for one in other}),
            SequenceMatcher(None, [one["name"] for one in calls], [one["name"] for one in other]).ratio(),
            share(values(calls), values(other)),
        )
        for other in others
    ]
    return dict(zip(FEATURES, map(mean, zip(*found, strict=True)), strict=True))


def verify(features: dict[str, float], path: str) -> float:
    """The probability that a course is right: a logistic regression, fitted to a file of features and labels (`right`)
    beside this one."""
    import numpy as np
    from scipy.optimize import minimize
    from scipy.special import expit

    rows = [json.loads(line) for line in (Path(__file__).parent / path).read_text(encoding="utf-8").splitlines()]
    known = np.array([[*(row[name] for name in FEATURES), 1.0] for row in rows])
    signs = np.array([1.0 if row["right"] else -1.0 for row in rows])

    def loss(weights: Any) -> float:
        return float(np.logaddexp(0, -signs * (known @ weights)).mean() + 0.001 * weights @ weights)

    weights = minimize(loss, np.zeros(known.shape[1])).x
    return float(expit(np.array([*(features[name] for name in FEATURES), 1.0]) @ weights))


def share(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0


def values(calls: list[dict[str, Any]]) -> set[str]:
    return {f"{one['name']} {key} {str(value).lower()}" for one in calls for key, value in one["arguments"].items()}

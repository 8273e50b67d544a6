"""Logistic regression on a few named features: small enough to be readable in a workflow file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def fit_logistic(
    rows: Sequence[Mapping[str, float]], wanted: Sequence[float], names: Sequence[str], *, penalty: float, bias: str
) -> dict[str, float]:
    """Fit weights of the features `names` to targets in [0, 1], by Newton's method with an L2 penalty.

    bias: the feature that is hardly penalized. Features of a row that are not in `names` are ignored.
    """
    import numpy as np

    column = {name: i for i, name in enumerate(names)}
    x = np.zeros((len(rows), len(names)))
    for index, row in enumerate(rows):
        for name, value in row.items():
            if name in column:
                x[index, column[name]] = value
    y, w = np.array(wanted, dtype=float), np.zeros(len(names))
    ridge = np.diag([1e-3 if name == bias else penalty for name in names])
    for _ in range(25):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        step = np.linalg.solve((x.T * (p * (1 - p))) @ x + ridge, x.T @ (y - p) - ridge @ w)
        w = w + step
        if float(np.abs(step).max()) < 1e-8:
            break
    return {name: float(w[i]) for name, i in column.items()}

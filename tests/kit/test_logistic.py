"""The fit against an independent reference, SciPy's minimiser on the same loss."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from workbench_kit.searching import fit_logistic


@pytest.mark.parametrize("seed", range(3))
def test_the_weights_minimise_the_penalised_loss(seed: int) -> None:
    draw = random.Random(seed)
    rows = [{"bias": 1.0, "a": draw.gauss(0, 1), "b": draw.gauss(0, 1), "unnamed": 9.0} for _ in range(60)]
    wanted = [float(draw.random() < 1 / (1 + math.exp(-2 * r["a"] + r["b"]))) for r in rows]
    found = fit_logistic(rows, wanted, ["bias", "a", "b"], penalty=0.5, bias="bias")
    x, y = np.array([[r["bias"], r["a"], r["b"]] for r in rows]), np.array(wanted)

    def loss(w: np.ndarray) -> float:
        z = x @ w
        return float(np.sum(np.logaddexp(0, z) - y * z) + 0.5 * np.array([1e-3, 0.5, 0.5]) @ (w * w))

    from scipy.optimize import minimize

    theirs = minimize(loss, np.zeros(3), method="BFGS").x
    assert list(found.values()) == pytest.approx(list(theirs), abs=1e-3)


def test_rows_that_can_be_told_apart_do_not_blow_up() -> None:
    rows = [{"bias": 1.0, "a": float(i)} for i in range(-10, 11) if i]
    found = fit_logistic(rows, [float(r["a"] > 0) for r in rows], ["bias", "a"], penalty=1.0, bias="bias")
    assert 0 < found["a"] < 10 and abs(found["bias"]) < 1e-6

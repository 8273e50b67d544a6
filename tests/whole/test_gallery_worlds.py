"""Published designs whose agents act in live worlds: each is right, and wrong where its mechanism is taken out.

The numbers in the names are those of the documents that list the designs.
"""

from __future__ import annotations

import importlib.util
import math

import pytest
from tests.helpers.gallery_tried import GALLERY


def test_the_information_of_an_experiment_is_that_of_the_linear_gaussian_model() -> None:
    """By nested Monte Carlo and in closed form: half the logarithm of 1 + (weights * prior / noise)^2."""
    spec = importlib.util.spec_from_file_location("worlds", GALLERY / "worlds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    spring = module.Spring()
    for weights in (1, 3, 10):
        exact = 0.5 * math.log(1 + (weights * spring.PRIOR[1] / spring.NOISE) ** 2)
        assert spring.information(weights, 600) == pytest.approx(exact, abs=0.12), weights

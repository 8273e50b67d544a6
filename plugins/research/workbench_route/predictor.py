"""Probabilities from features: a calibrated mean of linear and tree models, as plain numbers.

What the library has fitted is kept as JSON and evaluated here, in pure Python: a decision needs no library, and a file
is data, never an object that is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench_route.features import Features

#: A number of a learned model. No infinities, and no NaN, with which a comparison is never true.
Real = Annotated[float, Field(allow_inf_nan=False)]


class Learned(BaseModel):
    """Base of what is learned: unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Linear(Learned):
    """Log-odds as a weighted sum. weights: by the index of the feature."""

    bias: Real
    weights: Mapping[int, Real] = Field(default_factory=dict)

    def log_odds(self, features: Features) -> float:
        weights = self.weights
        return self.bias + sum(weights[i] * value for i, value in features.items() if i in weights)


class Tree(Learned):
    """A decision tree as arrays by node, the root first. feature: -1 at a leaf, whose log-odds are its value."""

    feature: list[int]
    threshold: list[Real]
    left: list[int]
    right: list[int]
    value: list[Real]

    @model_validator(mode="after")
    def _ends(self) -> Tree:
        """Children stand after their parents, so that a walk ends whatever a file says."""
        size = len(self.feature)
        if not size or any(len(part) != size for part in (self.threshold, self.left, self.right, self.value)):
            raise ValueError("the arrays of a tree must have one length")
        for i, feature in enumerate(self.feature):
            if feature >= 0 and not (i < self.left[i] < size and i < self.right[i] < size):
                raise ValueError("a node of a tree must stand before its children")
        return self

    def leaf(self, features: Features) -> float:
        node, split = 0, self.feature
        while split[node] >= 0:
            below = features.get(split[node], 0.0) <= self.threshold[node]
            node = self.left[node] if below else self.right[node]
        return self.value[node]


class Trees(Learned):
    """Log-odds as a sum over trees, as gradient boosting fits them."""

    bias: Real
    trees: list[Tree]

    def log_odds(self, features: Features) -> float:
        return self.bias + sum(tree.leaf(features) for tree in self.trees)


class Sigmoid(Learned):
    """Platt's calibration: the log-odds, stretched and shifted."""

    slope: Real = 1.0
    bias: Real = 0.0

    def calibrate(self, probability: float) -> float:
        return expit(self.slope * logit(probability) + self.bias)


class Predictor(Learned):
    """A probability for an input: the mean of its models' probabilities, calibrated."""

    models: list[Linear | Trees] = Field(min_length=1)
    calibration: Sigmoid = Sigmoid()

    def raw(self, features: Features) -> float:
        """The mean probability before calibration."""
        return math.fsum(expit(model.log_odds(features)) for model in self.models) / len(self.models)

    def __call__(self, features: Features) -> float:
        return self.calibration.calibrate(self.raw(features))

    @property
    def constant(self) -> bool:
        """Return True if it says the same of every input."""
        return all(isinstance(m, Linear) and not m.weights for m in self.models)


def expit(odds: float) -> float:
    """The logistic function, without overflow."""
    if odds >= 0:
        return 1 / (1 + math.exp(-odds))
    small = math.exp(max(odds, -700.0))
    return small / (1 + small)


def logit(probability: float) -> float:
    """Log-odds, kept finite."""
    p = min(max(probability, 1e-12), 1 - 1e-12)
    return math.log(p / (1 - p))

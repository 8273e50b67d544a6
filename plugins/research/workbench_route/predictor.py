"""Probabilities from features: a calibrated mean of linear and tree models, as plain numbers.

What the library has fitted is kept as JSON and evaluated here, in pure Python: a decision needs no library, and a file
is data, never an object that is loaded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench.errors import SpecError
from workbench_route.features import Features

#: A number of a learned model. No infinities, and no NaN, with which a comparison is never true.
Real = Annotated[float, Field(allow_inf_nan=False)]


class Learned(BaseModel):
    """Base of what is learned: unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LearnedSetting(Learned):
    """Base of what a node's setting `learned` holds, as JSON.

    what, hint: the words of the error for a text that is something else. tables: parts with a line for each item.
    """

    what: ClassVar[str]
    hint: ClassVar[str]
    tables: ClassVar[tuple[str, ...]] = ()

    def dump(self) -> str:
        """Return the text that `parse` reads, a line for each part."""
        parts = self.model_dump(mode="json", exclude_defaults=True)
        written = {key: _table(part) if key in self.tables else _json(part) for key, part in parts.items()}
        return "{" + ",\n".join(f"{_json(key)}: {part}" for key, part in written.items()) + "}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `dump` wrote. Raises SpecError."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"][:3])
            message = first["msg"].removeprefix("Value error, ")
            raise SpecError(
                f"this is not a learned {cls.what}: {place + ': ' if place else ''}{message}",
                hint=cls.hint,
                path=("learned",),
            ) from None


def _table(part: Mapping[str, object]) -> str:
    inner = ",\n".join(f" {_json(name)}: {_json(item)}" for name, item in part.items())
    return f"{{\n{inner}\n}}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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

"""The navigator: a network of fewer than 3,000 numbers that values each choice in a state.

It is kept as JSON in the file and evaluated here, in pure Python, as the router is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_origin

from pydantic import Field as Setting, model_validator

from workbench.errors import SpecError
from workbench.workflow import Field, Image
from workbench_kit.answers import convert
from workbench_kit.prompting import plain_adapter as plain
from workbench_route.features import SHAPE, FeatureSpace
from workbench_route.predictor import LearnedSetting, Real

#: A navigator has fewer numbers than this (Hao et al., arXiv 2505.14140: "less than 3K parameters").
MAX_NUMBERS = 3000
#: Units of the hidden layer: as many as fit, between these.
MIN_HIDDEN, MAX_HIDDEN = 4, 32
#: Buckets for the hashed words of a text.
WORDS = 16
#: A feature counts as at most this many standard deviations from its mean.
MAX_DEVIATION = 5.0


class StateSpace:
    """The features of a state, by the types of its fields.

    A number is one feature, a Literal or bool one for each of its values, a list or dict the logarithm of its length,
    and a text its shape and hashed words.
    """

    def __init__(self, fields: Sequence[Field]):
        self.fields = fields
        self._words = FeatureSpace(1, 0, WORDS)

    @property
    def size(self) -> int:
        return sum(self._width(field) for field in self.fields)

    def _width(self, field: Field) -> int:
        if field.allowed:
            return len(field.allowed)
        return 1 if field.type in (int, float) or _is_collection(field) else SHAPE + WORDS

    def encode(self, inputs: Mapping[str, Any]) -> list[float]:
        """Return the features. Raises NodeError("unparsed") for a value that is not of the field's type."""
        return [value for field in self.fields for value in self._encode(field, inputs[field.name])]

    def _encode(self, field: Field, value: Any) -> list[float]:
        if value is None:
            return [0.0] * self._width(field)
        if field.allowed:  # another value, such as the first one of a carried field, is none of them
            return [float(str(value).strip().casefold() == str(known).casefold()) for known in field.allowed]
        if field.type in (int, float) or _is_collection(field):
            read = convert(field, value)[0] if isinstance(value, str) else value
            number = math.log2(1 + len(read)) if _is_collection(field) else float(read)
            return [number if math.isfinite(number) else 0.0]
        found = self._words.extract([plain.as_text(value)])
        return [found.get(i, 0.0) for i in range(self._words.size)]


def _is_collection(field: Field) -> bool:
    return (get_origin(field.type) or field.type) in (list, dict)


class Navigator(LearnedSetting):
    """A dueling network: the value of a choice is that of the state plus the choice's advantage over their mean.

    inputs: the fields that it reads. center, scale: mean and standard deviation of each feature. hidden: for each unit
    its weights and, at the end, its bias; value and advantages likewise.
    """

    what = "navigator"
    hint = "The optimizer `navigate` writes this setting; leave it out to take the first choice every time."

    version: Literal[1] = 1
    inputs: list[str]
    choices: list[str] = Setting(min_length=2)
    center: list[Real]
    scale: list[Real]
    hidden: list[list[Real]] = Setting(min_length=1)
    value: list[Real]
    advantages: list[list[Real]]

    @model_validator(mode="after")
    def _fits_together(self) -> Navigator:
        size, units = len(self.center), len(self.hidden)
        if len(self.scale) != size or any(scale <= 0 for scale in self.scale):
            raise ValueError("scale must have a number above 0 for each of center")
        if any(len(row) != size + 1 for row in self.hidden):
            raise ValueError(f"each row of hidden must have {size + 1} numbers")
        if len(self.advantages) != len(self.choices):
            raise ValueError(f"there must be {len(self.choices)} rows of advantages")
        if any(len(row) != units + 1 for row in (self.value, *self.advantages)):
            raise ValueError(f"value and each row of advantages must have {units + 1} numbers")
        if self.numbers >= MAX_NUMBERS:
            raise ValueError(f"a navigator has fewer than {MAX_NUMBERS} numbers, and this one {self.numbers}")
        return self

    @property
    def numbers(self) -> int:
        """Count all learned numbers."""
        rows = (self.center, self.scale, *self.hidden, self.value, *self.advantages)
        return sum(len(row) for row in rows)

    def values(self, features: Sequence[float]) -> list[float]:
        """Return the expected discounted score of each choice."""
        x = [_normal(*each) for each in zip(features, self.center, self.scale, strict=True)]
        units = [math.tanh(_weighted(row, x)) for row in self.hidden]
        advantages = [_weighted(row, units) for row in self.advantages]
        base = _weighted(self.value, units) - math.fsum(advantages) / len(advantages)
        return [base + advantage for advantage in advantages]


def hidden_units(size: int, choices: int) -> int:
    """Return the number of hidden units that fit. Raises SpecError if too few do."""
    left = MAX_NUMBERS - 1 - 2 * size - (choices + 1)
    units = min(MAX_HIDDEN, left // (size + 1 + choices + 1))
    if units < MIN_HIDDEN:
        raise SpecError(
            f"the state has {size} features, too many for a navigator of fewer than {MAX_NUMBERS} numbers",
            hint=f"A text is {SHAPE + WORDS} features, a number one. Read fewer fields, or let a step rate them first.",
            path=("signature",),
        )
    return units


def refuse_images(fields: Sequence[Field]) -> None:
    """Raise SpecError for a field that has no features."""
    for field in fields:
        if field.type is Image:
            raise SpecError(
                f"a navigator cannot read the image '{field.name}'",
                hint="Let a step describe it, and read what that writes.",
                path=("signature",),
            )


def _normal(value: float, center: float, scale: float) -> float:
    return max(-MAX_DEVIATION, min(MAX_DEVIATION, (value - center) / scale))


def _weighted(row: Sequence[float], x: Sequence[float]) -> float:
    return math.fsum(w * v for w, v in zip(row, x, strict=False)) + row[-1]

"""Random draws from a search space."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any


class RandomTrial:
    """A trial that draws every value at random, except `fixed` ones, by name (`Space.starts`). A baseline search."""

    def __init__(self, rng: random.Random, fixed: Mapping[str, Any] = MappingProxyType({})):
        self.rng, self.fixed = rng, fixed

    def suggest_float(
        self, name: str, low: float, high: float, *, log: bool = False, step: float | None = None
    ) -> float:
        if name in self.fixed:
            return self.fixed[name]
        if log:
            return min(max(math.exp(self.rng.uniform(math.log(low), math.log(high))), low), high)
        if step:
            return min(low + step * self.rng.randrange(round((high - low) / step) + 1), high)
        return self.rng.uniform(low, high)

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False, step: int = 1) -> int:
        if name in self.fixed:
            return self.fixed[name]
        if log:
            drawn = math.exp(self.rng.uniform(math.log(low - 0.5), math.log(high + 0.5)))
            return min(max(round(drawn), low), high)
        return self.rng.randrange(low, high + 1, step)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self.fixed[name] if name in self.fixed else self.rng.choice(choices)

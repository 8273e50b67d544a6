"""The metric `world`: the score that a world gave itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.task import Example


class WorldScore:
    """The score of the world that a node `play` ended with, a number in [0, 1]. field: that has it."""

    powers = {}

    def __init__(self, field: str = "score"):
        self.field = field

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any) -> float:
        return float(prediction[self.field])

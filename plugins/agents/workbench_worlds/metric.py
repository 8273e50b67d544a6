"""The metric `world`: a world's own score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.task import Example


class WorldScore:
    """The final score of the world in a node `play`, a number in [0, 1]. field: the field with the score."""

    def __init__(self, field: str = "score"):
        self.field = field

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any) -> float:
        return float(prediction[self.field])

"""A metric on the length of an answer."""

from __future__ import annotations

from workbench import Score


class Shorter:
    """1 for an answer of at most `limit` characters, falling to 0 at twice that."""

    def __init__(self, field: str, limit: int = 100):
        self.field, self.limit = field, limit

    def __call__(self, example, prediction, trace=None) -> Score:
        length = len(str(prediction[self.field]))
        value = min(1.0, max(0.0, 2 - length / self.limit))
        return Score(value, None if value == 1 else f"{length} characters, wanted at most {self.limit}")

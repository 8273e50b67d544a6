"""The floor of a task: what its rows reach without any model. A winner that is not above it is paid for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from workbench.task import Example, Task


class Floor(NamedTuple):
    """score: the mean on the rows. how: what answers them, in words."""

    score: float
    how: str

    def describe(self, on: str) -> str:
        """Return the start of a line on it. on: which rows."""
        return f"Without a model: {self.how} has {self.score:.3f} on {on}"

    def beside(self, winner: float | None) -> str:
        """Return a line for the report. winner: its mean on the same rows."""
        above = winner is not None and winner > self.score
        return f"{self.describe('the same rows')}{'.' if above else ', which the winner is not above.'}"


def find_floor(task: Task, rows: Sequence[Example]) -> Floor | None:
    """Return what the metric knows to be reached without a model (`workbench.task.Metric`, `floor`); None: nothing."""
    floor: Any = getattr(task.metric, "floor", None)
    if not callable(floor) or not rows:
        return None
    with suppress(Exception):  # a metric's fault must not take the report of a test that is paid for
        found: Any = floor(list(task.dataset.train), rows, task.inputs)
        return None if found is None else Floor(*found)
    return None

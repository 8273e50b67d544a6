"""The floor of a task: the score of its rows without any model. Calls of a winner below it are wasted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from workbench.task import Example, Task


class Floor(NamedTuple):
    """A score without a model. score: the mean on the rows. how: a description of the method."""

    score: float
    how: str

    def describe(self, on: str) -> str:
        """Return the start of a line about it. on: the name of the rows."""
        return f"Without a model: {self.how} has {self.score:.3f} on {on}"

    def beside(self, winner: float | None) -> str:
        """Return a line for the report. winner: its mean on the same rows."""
        above = winner is not None and winner > self.score
        return f"{self.describe('the same rows')}{'.' if above else ', which the winner is not above.'}"


def find_floor(task: Task, rows: Sequence[Example]) -> tuple[Floor | None, list[str]]:
    """Return the floor that the metric knows by its `floor` (`workbench.task.Metric`), or None; and a warning if that
    fails, because it must not prevent the report of a test that is paid for."""
    floor: Any = getattr(task.metric, "floor", None)
    if floor is None or not rows:
        return None, []
    try:
        found: Any = floor(list(task.dataset.train), rows, task.inputs)
        return None if found is None else Floor(float(found[0]), str(found[1])), []
    except Exception as error:
        return None, [f"the metric's `floor` failed: {type(error).__name__}: {error}"]

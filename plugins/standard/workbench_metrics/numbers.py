"""The metric `numeric`: is the number that the answer gives the right one?"""

from __future__ import annotations

import math
from typing import Any

from workbench.task import Score
from workbench_kit.answers import read_number
from workbench_metrics.base import FieldMetric, shorten, unreadable


class Numeric(FieldMetric):
    """1 if the number that the prediction gives equals the row's number.

    That is the one that is boxed or introduced as the answer, else the last one (`workbench_kit.answers.numbers`). A
    row's value may also be a list of accepted numbers. Units are not read: 5 km is 5, and so is 5 m.

    rel, abs: tolerances; the defaults allow only for rounding of binary fractions. percent: also read 50% as 0.5.
    """

    def __init__(
        self, field: str, target: str | None = None, rel: float = 1e-9, abs: float = 1e-9, percent: bool = False
    ):
        super().__init__(field, target)
        self.rel, self.abs, self.percent = float(rel), float(abs), percent

    def compare(self, given: Any, wanted: Any) -> Score:
        right, value = (self._number(one) for one in (wanted, given))
        if right is None or not math.isfinite(right):
            raise unreadable(self.target, f"there is no number in {shorten(wanted)}")
        if value is None:
            return Score(0.0, f"expected {right:g}, found no number in {shorten(given)}")
        close = value == right or math.isclose(value, right, rel_tol=self.rel, abs_tol=self.abs)
        return Score(1.0) if close else Score(0.0, f"expected {right:g}, got {value:g}")

    def _number(self, value: Any) -> float | None:
        if isinstance(value, bool):
            return None
        if not isinstance(value, int | float):
            found = read_number(str(value), self.field)
            return None if found is None else found[0].value * (0.01 if self.percent and found[0].percent else 1)
        try:
            return float(value)
        except OverflowError:  # an integer of 400 digits
            return None

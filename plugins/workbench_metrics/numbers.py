"""The metric `numeric`: is the last number of the answer the right one?"""

from __future__ import annotations

import math
import re
from typing import Any

from workbench.data import Score
from workbench_metrics.base import FieldMetric, short

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?\s*%?")


class Numeric(FieldMetric):
    """1 if the last number in the prediction is the row's number. Reads commas, $, fractions and percent.

    rel, abs: tolerances; the default allows only rounding of binary fractions. percent: also read 50% as 0.5.
    """

    def __init__(
        self, field: str, target: str | None = None, rel: float = 1e-9, abs: float = 1e-9, percent: bool = False
    ):
        super().__init__(field, target)
        self.rel, self.abs, self.percent = float(rel), float(abs), percent

    def compare(self, given: Any, wanted: Any) -> Score:
        right, value = last_number(wanted, self.percent), last_number(given, self.percent)
        if right is None:
            raise ValueError(f"the row's '{self.target}' has no number: {short(wanted)}")
        if value is None:
            return Score(0.0, f"expected {right:g}, found no number in {short(given)}")
        close = math.isclose(value, right, rel_tol=self.rel, abs_tol=self.abs)
        return Score(1.0) if close else Score(0.0, f"expected {right:g}, got {value:g}")


def last_number(value: Any, percent: bool = False) -> float | None:
    """The last number in a value, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.findall(str(value).replace("−", "-"))
    return _read(found[-1], percent) if found else None


def _read(text: str, percent: bool) -> float | None:
    share = 0.01 if percent and text.rstrip().endswith("%") else 1.0
    top, slash, bottom = text.rstrip("% ").replace(",", "").partition("/")
    try:
        return float(top) / (float(bottom) if slash else 1.0) * share
    except (ValueError, ZeroDivisionError):
        return None

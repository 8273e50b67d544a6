"""The metric `numeric`: is the last number of the answer the right one?"""

from __future__ import annotations

import math
import re
from typing import Any

from workbench.task import Score
from workbench_metrics.base import FieldMetric, shorten

# Not inside a word (CO2) or a version (1.2.3); a sign only where it is no dash between two numbers (5-10).
_NUMBER = re.compile(
    r"""(?<![^\W_]) (?<!\d\.)
    (?: [-+][$€£¥]? )?
    (?: (?: \d{1,3} (?:,\d{3})+ (?!\d) | \d+ ) (?:\.\d*)? | (?<!\.)\.\d+ )
    (?: [eE][-+]?\d+ )?
    (?: \s*/\s*\d+ (?![.,]?\d) )?
    \s*%?""",
    re.VERBOSE,
)


class Numeric(FieldMetric):
    """1 if the last number in the prediction equals the row's number. Reads commas, $, fractions and percent.

    A row's value may also be a list of accepted numbers. Units are not read: 5 km is 5, and so is 5 m.

    rel, abs: tolerances; the defaults allow only for rounding of binary fractions. percent: also read 50% as 0.5.
    """

    def __init__(
        self, field: str, target: str | None = None, rel: float = 1e-9, abs: float = 1e-9, percent: bool = False
    ):
        super().__init__(field, target)
        self.rel, self.abs, self.percent = float(rel), float(abs), percent

    def compare(self, given: Any, wanted: Any) -> Score:
        right, value = find_last_number(wanted, self.percent), find_last_number(given, self.percent)
        if right is None or not math.isfinite(right):
            raise ValueError(f"the row's '{self.target}' has no number: {shorten(wanted)}")
        if value is None:
            return Score(0.0, f"expected {right:g}, found no number in {shorten(given)}")
        close = math.isclose(value, right, rel_tol=self.rel, abs_tol=self.abs)
        return Score(1.0) if close else Score(0.0, f"expected {right:g}, got {value:g}")


def find_last_number(value: Any, percent: bool = False) -> float | None:
    """The last number in a value, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _float(value)
    found = [match[0] for match in _NUMBER.finditer(str(value).replace("−", "-"))]
    return _read(found[-1], percent) if found else None


def _read(text: str, percent: bool) -> float | None:
    share = 0.01 if percent and text.rstrip().endswith("%") else 1.0
    top, slash, bottom = re.sub(r"[\s,$€£¥%]", "", text).partition("/")
    above, below = _float(top), _float(bottom) if slash else 1.0
    return above / below * share if above is not None and below else None


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except (ValueError, OverflowError):  # an integer of 400 digits
        return None

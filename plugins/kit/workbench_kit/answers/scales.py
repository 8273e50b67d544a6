"""A scale of grades, and the conversion of a grade to a share of it."""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

NUMBER = r"(\d+(?:\.\d+)?)"
#: A grade with its highest: `4/5`, `4 out of 5`.
OF = r"\s*(?:(?:stars?|points?|marks?)\s+)?(?:/|\(?out of|of|\(?on a scale (?:of|from) \d+ (?:to|-|\u2013))\s*"


class Scale(NamedTuple):
    """The grades that a judge may give: low is a share of 0, high of 1. low may be the larger number.

    open: the judge may state another one, as in `4/5`.
    """

    low: float
    high: float
    open: bool = False

    @property
    def best(self) -> float:
        """Return the largest number of the scale."""
        return max(self.low, self.high)

    @property
    def whole(self) -> bool:
        """Return True if whole numbers are asked for; on a scale that ends at 1, fractions are."""
        return self.best > 1

    def share(self, text: str, stated: bool = False) -> float | None:
        """Return a grade as a share of the scale; None for one on another scale.

        `3/5` and 60% are shares by themselves.

        Args:
            text: the grade.
            stated: the answer itself states the scale.
        """
        value, _, below = re.sub(rf"(?i){OF}", "/", text.replace(",", ".").replace("%", "/100")).partition("/")
        if below and float(below) != self.best:
            if self.low > self.high:  # it is of another scale, with an unknown best end
                return None
            return float(value) / float(below) if 0 <= float(value) <= float(below) and float(below) else None
        # Where whole numbers from 0 are asked for, 0.5 and 1.0 may be shares, on 0 to 5 as on 0 to 10: 1.0 is then the
        # best grade, and else nearly the worst one. A row without a grade is the smaller fault. From 1 on, no share up
        # to 1 is on the scale, and 1.0 is its worst grade.
        least = min(self.low, self.high)
        unclear = self.whole and least < 1 and "." in value and 0 < float(value) <= 1 and not (below or stated)
        if unclear or not least <= float(value) <= self.best:
            return None
        return (float(value) - self.low) / (self.high - self.low)

    def describe(self, whole: bool = False) -> str:
        """Return the meaning of N in `score: N`, for the judge."""
        if self.open:
            default = "" if self == UNREAD else f", or {self.high:g} if it names none"
            return f"N is the grade and the best one that the rubric allows{default}, such as 4/5"
        number = "whole number" if self.whole or whole else "number"
        return f"N is a {number} from {self.low:g} (wrong) to {self.high:g} (fully right)"

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


#: The scale of a rubric that only the judge can read and must state, as in `4/5`. No number is on it.
UNREAD = Scale(inf, inf, open=True)

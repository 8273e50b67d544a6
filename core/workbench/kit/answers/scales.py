"""The scale of grades: what a rubric asks for, and a grade as a share of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

#: A scale that a rubric states: `from 0.0 to 1.0`, `1 (bad) to 5 (good)`, `1-5 points`, `0 or 1`.
NUMBER, _SAID = r"(\d+(?:\.\d+)?)", r"\s*(?:\([^()\n]{0,60}\)|[=:]\s*[\w ]{1,40})?\s*"
_RANGE = (
    rf"{NUMBER}{_SAID}(?:[-\u2013,/]|\.\.|to|and|through|or)\s*{NUMBER}(?![\d%]|\.\d)"
    r"(?=\s*(?:\Z|[^\w\s]|(?:points|stars|scale|inclusive|where|for|on|based|by|how|depending|according)\b))"
)
_ASKS = r"from|scale(?: of| from)?|range(?: of)?|score|grade|rate|rating|give|answer|reply|return|number|in"
#: Dates and counts are between two numbers, too: a grade must be asked for in the same clause.
_BETWEEN = (
    r"(?:scores?|scored|grades?|graded|rate|rated|rating|points|marks?)\b"
    r"(?:(?!\b(?:if|when|unless|whether|that|which)\b)[^.,;:\n]){0,60}?\bbetween"
)
_FROM_TO = re.compile(
    rf"(?i)\b(?:{_ASKS}|{_BETWEEN}|(?:number|scale|range) between)\W{{1,3}}"
    rf"(?:(?:of|it|with|in|the \w+|from|a \w+)\W{{1,2}}){{0,2}}{_RANGE}"
    rf"|\A\W*{_RANGE}|\b{_RANGE}\s*(?:points|stars)\b"
)
_OUT_OF = re.compile(
    rf"(?i)\b(?:score|grade|rate|points?|rating)\b[^.\n]{{0,40}}\bout of {NUMBER}(?![\d%]|\.\d)"
    rf"|\bup to {NUMBER}\s+(?:points|stars)\b"
)
#: Every grade of a scale: `0: wrong, 1: partly right, 2: right`, `0, 1 or 2`.
_NEXT = re.compile(rf"{_SAID}(?:[,/;.\n]|\s(?:or|and)\s)\s*(?:(?:or|and)\s)?\s*")
_WHOLE_NUMBER = re.compile(r"(?<![\d.,])\d{1,3}(?![\d%]|\.\d)")
#: `1 if it is right, 0 otherwise`, `binary: 0 or 1`; `a 5-point scale`.
_BINARY = re.compile(
    r"(?i)\b([01])\W{1,3}(?:if|when|for)\b[^.\n]{1,150}\b(?!\1)[01]\W{1,3}(?:if|when|for|otherwise|in all)\b|"
    r"\bbinary\b[^.\n\d]{0,40}\b(?:0 ?(?:or|/|and) ?1|1 ?(?:or|/|and) ?0)\b"
)
_POINTS = re.compile(r"(?i)\b(\d{1,2})[- ]point\s+(?:likert\s+|rating\s+)?scale\b")
#: A grade `of` its highest: `4/5`, `4 out of 5`.
OF = r"\s*(?:(?:stars?|points?|marks?)\s+)?(?:/|\(?out of|of|\(?on a scale (?:of|from) \d+ (?:to|-|\u2013))\s*"


class Scale(NamedTuple):
    """The grades that a judge is asked for: low is a share of 0, high of 1."""

    low: float
    high: float

    @property
    def whole(self) -> bool:
        """True if whole numbers are asked for; on a scale that ends at 1, fractions are."""
        return self.high > 1

    def share(self, text: str, stated: bool = False) -> float | None:
        """Return a grade as a share of the scale; None for one on another scale.

        `3/5` and 60% are shares by themselves.

        Args:
            text: the grade.
            stated: the answer itself states the scale.
        """
        value, _, below = re.sub(rf"(?i){OF}", "/", text.replace(",", ".").replace("%", "/100")).partition("/")
        if below and float(below) != self.high:
            return float(value) / float(below) if 0 <= float(value) <= float(below) and float(below) else None
        # Where whole numbers from 0 are asked for, 0.5 and 1.0 may be shares, on 0 to 5 as on 0 to 10: 1.0 is then the
        # best grade, and else nearly the worst one. A row without a grade is the smaller fault. From 1 on, no share up
        # to 1 is on the scale, and 1.0 is its worst grade.
        unclear = self.whole and self.low < 1 and "." in value and 0 < float(value) <= 1 and not (below or stated)
        if unclear or not self.low <= float(value) <= self.high:
            return None
        return (float(value) - self.low) / (self.high - self.low)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


def find_scale(rubric: str) -> Scale | None:
    """Return the scale that a rubric states, as `from 0.0 to 1.0`, `1-5`, `out of 5`; None if it states none, or
    several."""
    listed = [*_listed_scales(rubric)]
    for _, start, end in listed:
        rubric = f"{rubric[:start]}{'.' * (end - start)}{rubric[end:]}"
    numbers = [[float(number) for number in one.groups() if number] for one in _FROM_TO.finditer(rubric)]
    found = {Scale(low, high) for low, high in numbers} or {scale for scale, _, _ in listed}
    found |= {Scale(0.0, 1.0)} if not found and _BINARY.search(rubric) else set()
    found |= {Scale(1.0, float(one[1])) for one in _POINTS.finditer(rubric)} if not found else set()
    found |= {Scale(0.0, float(one[1] or one[2])) for one in _OUT_OF.finditer(rubric)} if not found else set()
    found = {one for one in found if (one.low == 0 and one.high >= 1) or (one.low == 1 and one.high >= 3)}
    found = {one for one in found if one.high <= 100}
    return found.pop() if len(found) == 1 else None


def _listed_scales(rubric: str) -> Iterator[tuple[Scale, int, int]]:
    """Yield (scale, start, end) of the scales of which each grade is named, three or more from 0 or 1 on."""
    runs = list[list[re.Match[str]]]()
    for number in _WHOLE_NUMBER.finditer(rubric):
        last = runs[-1][-1] if runs else None
        if last and int(number[0]) == int(last[0]) + 1 and _NEXT.fullmatch(rubric[last.end() : number.start()]):
            runs[-1].append(number)
        else:
            runs.append([number])
    for first, *others in runs:
        if first[0] in ("0", "1") and len(others) >= 2:
            yield Scale(float(first[0]), float(others[-1][0])), first.start(), others[-1].end()

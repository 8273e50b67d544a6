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
#: Some grades of a scale: `5: perfect; 3: usable; 0: wrong`, `5 if it is perfect, 0 otherwise`.
_LABELLED = re.compile(
    r"(?i)(?<![\d.,%/\-])\b(\d{1,3})(?:\s+(?:points?|stars?))?\s*(?:[:=](?!\d)|\s(?:if|when|otherwise|means|else)\b)"
)
#: Words that give a grade: `award 2 points`, `3 stars for the facts`, `a score of 4`, `rate style 0-10`. What is taken
#: off is none.
_GRADES = re.compile(
    r"(?i)(?<!deduct )(?<!subtract )(?<!minus )(?<!lose )(?<!loses )(?<![\d.,])\d{1,3} ?(?:points?|stars?|marks?)\b|"
    r"\b(?:score|grade|rate)\b[^.\n\d]{1,20}\b\d{1,3} ?(?:[-\u2013/]|to) ?\d{1,3}(?![\d%]|\.\d)\b|"
    r"\b(?:scores?|grades?|ratings?|rate|award|assign)\s+(?:(?:it|of|is|a|an|the|answer|as)\s+){0,2}\d{1,3}(?![\d%]|\.\d)\b"
)
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
    found = _find_scales(rubric)
    return found.pop() if len(found) == 1 else None


def choose_scale(rubric: str, best: int | None = None) -> Scale:
    """Return the scale that a rubric states, or else 0 to the best grade, by default 10.

    Raises:
        ValueError: it states another one than `best`, or several; or it names grades, of a scale that cannot be read.
    """
    found = _find_scales(rubric)
    only = next(iter(found)) if len(found) == 1 else None
    if best is not None:
        if only is not None and only.high != best:
            raise ValueError(f"the rubric asks for {only}, and scale is {best}: take one of them out")
        return only or Scale(0.0, float(best))
    if len(found) > 1:
        several = " and ".join(map(str, sorted(found)))
        raise ValueError(f"the rubric asks for {several}: ask for one grade, or write a metric for each")
    labels = [*_LABELLED.finditer(rubric)]
    if only is None and (
        named := _GRADES.search(rubric) or (labels[0] if len({one[1] for one in labels}) > 1 else None)
    ):
        raise ValueError(
            f"the rubric names grades ({named[0].strip()!r}) and no scale that can be read: write it as `from 0 to 5`"
        )
    return only or Scale(0.0, 10.0)


def _find_scales(rubric: str) -> set[Scale]:
    listed = [*_listed_scales(rubric)]
    for _, start, end in listed:
        rubric = f"{rubric[:start]}{'.' * (end - start)}{rubric[end:]}"
    numbers = [[float(number) for number in one.groups() if number] for one in _FROM_TO.finditer(rubric)]
    found = {Scale(low, high) for low, high in numbers} or {scale for scale, _, _ in listed}
    found |= {Scale(0.0, 1.0)} if not found and _BINARY.search(rubric) else set()
    found |= {Scale(1.0, float(one[1])) for one in _POINTS.finditer(rubric)} if not found else set()
    found |= {Scale(0.0, float(one[1] or one[2])) for one in _OUT_OF.finditer(rubric)} if not found else set()
    return {*filter(_is_usual, found)} or {*filter(_is_usual, _labelled_scale(rubric))}


def _is_usual(scale: Scale) -> bool:
    return scale.high <= 100 and ((scale.low == 0 and scale.high >= 1) or (scale.low == 1 and scale.high >= 3))


def _labelled_scale(rubric: str) -> Iterator[Scale]:
    """Yield the scale whose ends are among the grades that are named. Those of 1, 2, 3 in turn may number criteria."""
    named = [int(number) for number in _LABELLED.findall(rubric)]
    if len({*named}) > 1 and named != [*range(1, len(named) + 1)]:
        yield Scale(float(min(named)), float(max(named)))


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

"""Decide which end of a scale is its best one, by the words of a rubric."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_PLAIN = r"(?:(?:the|an?|very|considered|meaning|as|\w{3,12}ly|le|la|el|die|der|das) ){0,3}"
_HIGH = re.compile(
    rf"(?i){_PLAIN}(?:(?P<most>best|perfect|excellent|outstanding|highest quality|sehr gut|beste|meilleur\w?|mejor|"
    r"excelente|ottimo|top)|good|great|right|correct|gut)(?!\w)"
)
_LOW = re.compile(
    rf"(?i){_PLAIN}(?:(?P<most>worst|terrible|awful|useless|lowest quality|ungen\w+|schlechteste|nul|pire|peor|"
    r"pessim\w+)|bad|poor|wrong|incorrect|fail\w*|schlecht|mangelhaft|mal|malo|mauvais)(?!\w)"
)
#: Words that may follow if a level contains nothing else, as in `1 (best grade)`.
_OF_IT = re.compile(
    r"(?i)(?: (?:possible|quality|scores?|grades?|ratings?|marks?|answers?|responses?|results?|ones?|values?)){0,2}"
)
#: Characters around words, and ends of a level's words.
_DECORATION = re.compile(r"\bi\.e\. ?|[*_`\"'\u2018\u2019\u201c\u201d\u201e=(]")
_LEVEL_ENDS = re.compile(r"[^\w\s-]|\n|\s(?:-|to|and|or|bis|à|und|y|et|e)(?!\w)")
#: Statements about the scale: in its clause, or at the start of another. `Length: lower is better` is about something
#: else.
_LOWER = r"(?:lower|smaller|fewer|less)(?: (?:scores?|grades?|ratings?|marks?|numbers?|values?))? (?:is|are) better\b"
_LOWER_IS_BETTER = re.compile(rf"(?i)(?:\A[^.;:\n]{{0,60}}\b|[.;\n(]\W{{0,3}}(?:an? |the )?){_LOWER}(?!\s*,\s*\w+s\b)")
#: German marks, of which 1 is the best.
_MARKS = re.compile(r"(?i)\bschulnoten?\b")


class _End(NamedTuple):
    """way: above 0 for a high end, below for a low one, 2 for the best one, 0 for what is said in other words. rest:
    what the level says besides."""

    way: int
    rest: str


def is_turned(low: Iterable[str], high: Iterable[str], around: Sequence[str], marks: bool = False) -> bool:
    """Return True if the smallest number of a scale is its best grade.

    A single word among others is no evidence: in `1 = best practices ignored` the grade is a low one. It counts if both
    ends are otherwise worded alike: `1 = excellent work, 5 = terrible work`.

    Args:
        low, high: the words of the levels of the smallest and of the largest number.
        around: the text before and behind both numbers.
        marks: the scale may be one of German marks.
    """
    ends = [[_read_end(text) for text in texts] for texts in (low, high)]
    least, most = (max((one.way for one in own if not one.rest), key=abs, default=0) for own in ends)
    if (least > 0 > most) or (least == 2 and not most) or (most == -2 and not least):
        return True
    if any(a.way > 0 > b.way and a.rest == b.rest for a in ends[0] for b in ends[1]):
        return True
    below = (marks and any(map(_MARKS.search, around))) or any(map(_LOWER_IS_BETTER.search, around))
    return below and least >= 0 >= most


def _read_end(text: str) -> _End:
    words = _LEVEL_ENDS.split(_DECORATION.sub("", text).lstrip(), maxsplit=1)[0].strip()
    for kind, way in ((_HIGH, 1), (_LOW, -1)):
        if found := kind.match(words):
            rest = words[found.end() :].casefold()
            return _End(way * (2 if found["most"] else 1), "" if _OF_IT.fullmatch(rest) else rest)
    return _End(0, "")

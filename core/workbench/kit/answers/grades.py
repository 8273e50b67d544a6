"""The reader of grades: the number that a judge gives, and its words."""

from __future__ import annotations

import re

from workbench.kit.answers.conclusions import find_object
from workbench.kit.answers.json_text import read_objects

_NAMES = "score|grade|rating"
_VALUE = r"-?\d+(?:[.,]\d+)?(?:\s*(?:/|out of|of)\s*\d+)?"
# The last one counts: the sentence before it may quote the answer.
_GRADE = re.compile(rf"(?i)\b(?:{_NAMES})\b[\"'*_`]*\s*(?:[:=\uff1a]|is|of)\s*[\"'*_`]*\s*({_VALUE})")


def read_grade(text: str, best: int) -> tuple[float, str] | None:
    """(the grade as a share, the words with it) of a judge's answer; None without one from 0 to the best.

    `3/5` is 0.6 on any scale. An object with a score, which many judges write, is read as well.
    """
    for value in reversed([*read_objects(text)]):
        for name in _NAMES.split("|"):
            if (found := find_object(value, [name])) is not None:
                words = next((v for k, v in value.items() if isinstance(v, str) and k.lower() != name), "")
                return _share(str(found[name]), best, words)
    grades = list(_GRADE.finditer(text))
    return _share(grades[-1][1].lower(), best, text[: grades[-1].start()].strip(" \n*_#")) if grades else None


def _share(text: str, best: int, words: str) -> tuple[float, str] | None:
    if (found := re.search(_VALUE, text)) is None:
        return None
    value, _, below = re.sub(r"\s*(?:/|out of|of)\s*", "/", found[0].replace(",", ".")).partition("/")
    value, most = float(value), float(below or best)
    return (value / most, words) if most and 0 <= value <= most else None

"""The reader of grades: the number that a judge or a verifier gives, and its words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import NodeError
from workbench.kit.answers.conclusions import DECORATION, MANY, ends_of, find_parts
from workbench.kit.answers.json_text import read_objects

_NAMES = "score|grade|rating|评分|得分|分数|点数|スコア|점수|평점|bewertung|puntuación|pontuação|punteggio|оценка|балл"
_WHOLE = "final|overall|total"
#: The keys of an object that hold a grade, the surest first.
_KEYS = [f"{whole}{name}" for whole in ("final_", "overall_", "total_", "") for name in _NAMES.split("|")]
_OF = r"\s*(?:/|\(?out of|of|\(?on a scale (?:of|from) \d+ (?:to|-|\u2013))\s*"
_VALUE = rf"-?\d+(?:[.,]\d+)?(?![\d%]|\s?[-\u2013]\s?\d|\s(?:to|or|bis|à)\s\d)(?:{_OF}\d+)?|\d+(?:[.,]\d+)?%"
_MARK = rf"[\"'*_`]*(?:[ \t]*\([^()\n]*\))?(?:\s*[:=\uff1a]|[ \t][-\u2013][ \t])\s*[\"'*_`\[]*\s*({_VALUE})"
#: `8/10` in a sentence.
_BARE = re.compile(r"(?i)(?<![\d./])(\d+(?:[.,]\d+)?\s*(?:/|out of)\s*\d+)(?![\d/])")
#: A grade that was not given: `to get 10/10`.
_MISSED = re.compile(r"(?i)\b(?:would|could|might|to (?:get|reach|be|earn|make))\b[^.\n]{0,30}\Z")
#: What a grade is of, and words for the whole.
_LABEL = re.compile(r"([^\W\d][^:=\uff1a\n,;.]{0,40})[:=\uff1a]\s*[\"'*_`]*\Z")
_OF_ALL = re.compile(
    r"(?i)\b(?:final\w*|overall|total\w*|average|mean|verdict|conclusion|result|summary|evaluation|assessment|answer|"
    r"gesamt\w*|global\w*|complessiv\w*|note|nota|punteggio)\b|总|итог"
)
#: Where a grade may stand, the surest first: of a whole, behind its label, alone, in a tag or box, in a sentence, as
#: `8/10`.
#: Of several the last one counts: the sentence before it may quote the answer.
_PLACES = (
    re.compile(rf"(?im)^{DECORATION}(?:(?:{_WHOLE})[ _](?:{_NAMES})|overall)\b{_MARK}"),
    re.compile(rf"(?im)^{DECORATION}(?:{_NAMES})\b{_MARK}"),
    re.compile(
        rf"(?i)\A\s*({_VALUE})\s*\.?\s*\Z|\[result\]\s*({_VALUE})|<(?:{_NAMES})>\s*({_VALUE})|\[\[({_VALUE})\]\]|"
        rf"\\boxed\{{({_VALUE})\}}|#\s*(?:{_NAMES})\s*\n\s*({_VALUE})"
    ),
    re.compile(rf"(?i)\b(?:{_NAMES})\b[\"'*_`]*\s*(?:[:=\uff1a]|is|of)\s*[\"'*_`]*\s*({_VALUE})"),
    _BARE,
    # Words of English or of prose, too, and so the last ones.
    re.compile(rf"(?im)^{DECORATION}(?:note|nota|punkt(?:e|zahl))\b{_MARK}[\"'*_`]*\.?[ \t]*$"),
)


def read_grade(text: str, best: int) -> tuple[float, str] | None:
    """(the grade as a share, the words with it) of a judge's answer; None without one from 0 to the best.

    `3/5` is 0.6 on any scale, and so is 60%. An object with a score, which many judges write, is read as well.
    """
    for value in reversed([*read_objects(text)][-MANY:]):
        if found := find_parts(value, _KEYS):
            name = min(found, key=_KEYS.index)
            words = next((v for k, v in value.items() if isinstance(v, str) and k.lower() != name), "")
            return _share(str(found[name]), best, words)
    text = ends_of(text)
    for place in _PLACES:
        grades = [*place.finditer(text)]
        given = [one for one in grades if not _MISSED.search(text[max(0, one.start() - 60) : one.start()])]
        if grades := given or grades[-1:]:
            if (last := _find_whole(text, grades, best) if place is _BARE else grades[-1]) is None:
                return None
            return _share(next(filter(None, last.groups())), best, text[: last.start()].strip(" \n*_#"))
    return None


def _find_whole(text: str, grades: Sequence[re.Match[str]], best: int) -> re.Match[str] | None:
    """The grade that counts of several in a text: the last one of the whole, else the last one behind a label, or else
    on the scale asked for; None if each is of another part, as in `Clarity: 3/10, Depth: 8/10`."""
    found = [_LABEL.search(text[max(0, one.start() - 60) : one.start()]) for one in grades]
    labels = [label[1].strip().lower() if label else "" for label in found]
    whole = [one for one, label in zip(grades, labels, strict=True) if _OF_ALL.search(label)]
    if not whole and len(set(labels)) > 1 and all(labels) and len({one[1] for one in grades}) > 1:
        return None
    if labels[-1] or whole:
        return [*grades, *whole][-1]
    return [*grades[-1:], *(one for one in grades if one[0].endswith(f"/{best}"))][-1]  # `8/10 because of 3/4`


def _share(text: str, best: int, words: str) -> tuple[float, str] | None:
    if (found := re.search(rf"(?i){_VALUE}", text)) is None:
        return None
    value, _, below = re.sub(rf"(?i){_OF}", "/", found[0].replace(",", ".").replace("%", "/100")).partition("/")
    value, most = float(value), float(below or best)
    return (value / most, words) if most and 0 <= value <= most else None


def read_score(found: Mapping[str, Any]) -> tuple[float, str]:
    """(score, words) of a verifier's outputs. Raises NodeError for what is no score: that is the verifier's bug."""
    last = list(found.values())[-1] if found else None
    value, feedback = found.get("score", last), found.get("feedback", "")
    if isinstance(value, Mapping):
        value, feedback = value.get("score"), value.get("feedback", feedback)
    elif isinstance(value, list | tuple) and len(value) == 2:
        value, feedback = value
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise NodeError("verifier", f"a verifier gives true, false or a number in [0, 1], not {value!r:.80}")
    return float(value), str(feedback or "")

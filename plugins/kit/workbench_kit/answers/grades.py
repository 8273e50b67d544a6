"""The reader of grades: the number that a judge or a verifier gives, and the words with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from workbench.base.text import without_unseen
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import NodeError
from workbench_kit.answers.conclusions import DECORATION, MANY, ends_of, find_parts
from workbench_kit.answers.json_text import read_values
from workbench_kit.answers.scales import NUMBER, OF, Scale

_NAMES = "score|grade|rating|评分|得分|分数|点数|スコア|점수|평점|bewertung|puntuación|pontuação|punteggio|оценка|балл"
_WHOLE = "final|overall|total"
#: Keys of an object that hold a grade, the surest first.
_KEYS = [f"{whole}{name}" for whole in ("final_", "overall_", "total_", "") for name in _NAMES.split("|")]
_KEYS += _WHOLE.split("|")
#: Keys of a number for which `total` is the scale: `{"correct": 3, "total": 5}`.
_COUNTS = ("correct", "passed", "points", "marks", "score")
#: Keys of an object that name the subject of its grade.
_NAMING = ("criterion", "criteria", "name", "aspect", "dimension", "category", "metric")
_VALUE = (
    rf"-?\d+(?:[.,]\d+)?(?![\d%]|e[-+]?\d|[.,]\d|\s?[-\u2013]\s?\d|\s(?:to|or|bis|à)\s\d)(?:{OF}\d+)?|\d+(?:[.,]\d+)?%"
)
_MARK = rf"[\"'*_`]*(?:[ \t]*\([^()\n]*\))?(?:\s*[:=\uff1a]|[ \t][-\u2013][ \t])\s*[\"'*_`\[]*\s*({_VALUE})"
#: `8/10` in a sentence.
_BARE = re.compile(r"(?i)(?<![\d./])(\d+(?:[.,]\d+)?\s*(?:/|out of)\s*\d+)(?![\d/])")
#: A grade that was not given: `to get 10/10`.
_MISSED = re.compile(r"(?i)\b(?:would|could|might|to (?:get|reach|be|earn|make))\b[^.\n]{0,30}\Z")
#: The subject of a grade, and words for the whole.
_LABEL = re.compile(r"([^\W\d][^:=\uff1a|\n,;.]{0,40})[:=\uff1a|]\s*[\"'*_`]*\Z")
_BEFORE = re.compile(
    r"<(\w+)>\s*\Z|"  # <clarity><score>3
    r"(?m:^)[ \t]*(?:#{1,6}|\d{1,2}[.)]|\*\*|[-*][ \t])[ \t*_]*([^\n:.!?*]{1,40})[*_:]*[ \t]*\n\s*\Z|"  # a heading
    r"(?m:^)([^\W\d][^\n:.!?]{0,40}):[ \t]*\n\s*\Z"
)
#: A word before the name of a grade: `Clarity score: 3`.
_WORD = re.compile(
    r"\b(?!(?:a|an|the|my|our|your|this|that|its|is|with|and|so|score|new)\W+\Z)([^\W\d]\w*)[ \t*_`:|\u2013-]+\Z"
)
#: The subject of a grade, after it: `8/10 for depth`, `score: 3 (clarity)`.
_BEHIND = re.compile(r"\s*(?:\(([^\W\d][^()\n]{2,40})\)|(?:for|on|in) (?:the |its )?([^\W\d]\w{2,40}))")
#: Keys of an object that state the scale of its grade; and a scale in brackets, as in `Score (out of 5): 4`, or before
#: it, as in `On a scale of 1 to 5, score: 4`.
_LOWEST = ("min_score", "min", "minimum", "lowest")
_SCALES = ("max_score", "max", "maximum", "max_points", "out_of", "scale", "best", "score_range", "range")
_STATED = re.compile(rf"\(?\s*(?:from |out of |of |/)?\s*(?:{NUMBER}\s*(?:[-\u2013]|\.\.|to)\s*)?{NUMBER}\s*(?:\)|\Z)")
_ON_SCALE = re.compile(rf"(?i)\bscale (?:of|from) ({NUMBER} ?(?:-|\u2013|to) ?{NUMBER})\b[^.\n\d]{{0,60}}\Z")
_OF_ALL = re.compile(
    r"(?i)\b(?:final\w*|overall|total\w*|average|mean|verdict|conclusion|result|summary|evaluation|assessment|answer|"
    r"gesamt\w*|global\w*|complessiv\w*|note|nota|punteggio)\b|总|итог"
)
#: Places of a grade, the surest first: for the whole, after its label, alone, in a tag or box, in a sentence, as
#: `8/10`. The last of several counts: a sentence before it may quote the answer.
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


#: The lowest grade, if stated, and the highest one of a scale that an answer states.
_Stated = tuple[float | None, float]


def read_grade(text: str, best: int | Scale) -> tuple[float, str] | None:
    """Return (the grade as a share, the words with it) from a judge's answer; None if it has none on the scale.

    An object with a score, which many judges write, is read as well. Grades for several criteria count only with one
    for the whole.

    Args:
        text: the answer.
        best: the best grade, if the worst is 0; or the scale.
    """
    scale, text = best if isinstance(best, Scale) else Scale(0.0, float(best)), without_unseen(text)
    outside, graded = text, list[_Graded]()
    for value, start, end in [*read_values(text)][-MANY:]:
        if grades := [*_grades_in(value, _name_of(value) or _part_before(text, start))]:
            graded += grades
            outside = f"{outside[:start]}{' ' * (end - start)}{outside[end:]}"
    if graded and (one := _grade_of_all(graded)) is not None:
        return _share(one.grade, scale, one.scale, one.words)
    text = ends_of(outside if graded else text)
    for place in _PLACES:
        grades = [*place.finditer(text)]
        given = [one for one in grades if not _MISSED.search(text[max(0, one.start() - 60) : one.start()])]
        if grades := given or grades[-1:]:
            if (last := _find_whole(text, grades, scale, place is _BARE)) is None:
                return None
            stated = _read_scale(last[0][last[0].find("(") : last.start(last.lastindex or 0) - last.start()])
            if before := _ON_SCALE.search(text[max(0, last.start() - 90) : last.start()]):
                stated = stated or _read_scale(before[1])
            return _share(next(filter(None, last.groups())), scale, stated, text[: last.start()].strip(" \n*_#"))
    return None


class _Graded(NamedTuple):
    """A grade in an object.

    of: its subject, e.g. a criterion; "" for the whole. scale: stated by the object, if any.
    """

    of: str
    grade: str
    words: str
    scale: _Stated | None


def _grades_in(value: object, of: str = "", outer: Sequence[object] = ()) -> Iterator[_Graded]:
    """Yield the grades in JSON. A grade at the top of an object is the object's; its inner grades are then ignored.

    outer: the scales stated by enclosing objects.
    """
    if is_list(value):
        for number, item in enumerate(value):
            yield from _grades_in(item, _name_of(item) or (f"{of} {number}" if len(value) > 1 else of), outer)
    elif is_dict(value):
        found = find_parts(value, [*_KEYS, *_COUNTS, *_SCALES, *_LOWEST])
        parts = {name: found[name] for name in _KEYS if name in found and not isinstance(found[name], dict | list)}
        lowest = next((f"{found[name]}-" for name in _LOWEST if type(found.get(name)) in (int, float)), "")
        stated = [found[name] for name in _SCALES if name in found]
        scales = [f"{lowest}{one}" if type(one) in (int, float) else one for one in stated]
        count = next((name for name in _COUNTS if type(found.get(name)) in (int, float)), None)
        if count is not None and "total" in parts:
            total = parts.pop("total")
            parts = parts or {count: found[count]}
            scales += [total] if count == next(iter(parts)) else []
        if parts:
            name = next(iter(parts))
            words = next((v for k, v in value.items() if isinstance(v, str) and k.lower() != name), "")
            yield _Graded(of, str(parts[name]), words, next(filter(None, map(_read_scale, [*scales, *outer])), None))
            return
        for key, part in value.items():
            if str(key).lower() in _KEYS and is_dict(part) and "value" in part:  # {"score": {"value": 8, "max": 10}}
                yield from _grades_in({"score": part["value"], **part}, of or str(key), [*scales, *outer])
            else:
                yield from _grades_in(part, str(key), [*scales, *outer])


def _grade_of_all(grades: Sequence[_Graded]) -> _Graded | None:
    """Return the grade in objects that counts: the only one, or the last one for the whole."""
    whole = [one for one in grades if not one.of or _OF_ALL.search(one.of)]
    if whole or len({one.grade for one in grades}) == 1 or len({one.of for one in grades}) == 1:
        return [*grades[-1:], *whole][-1]
    return None


def _name_of(value: object) -> str:
    """Return the criterion that an object names; "" if none."""
    return next((str(value[key]) for key in value if str(key).lower() in _NAMING), "") if is_dict(value) else ""


def _part_before(text: str, start: int, by_word: bool = False) -> str:
    """Return the subject of a grade, by the label, word, tag or heading before it; "" if none."""
    before = text[max(0, start - 60) : start]
    if found := _LABEL.search(before) or _BEFORE.search(before) or (_WORD.search(before) if by_word else None):
        return next(filter(None, found.groups())).strip().lower()
    return ""


def _part_behind(text: str, end: int) -> str:
    found = _BEHIND.match(text, end)
    return next(filter(None, found.groups())).lower() if found else ""


def _read_scale(stated: object) -> _Stated | None:
    """Return the scale stated by an object or brackets: 5, `1-5`, [0, 5], `out of 5`; None for anything else."""
    if is_list(stated):
        stated = "-".join(map(str, stated))
    found = None if isinstance(stated, bool) else _STATED.match(str(stated))
    if found is None or float(found[2]) <= float(found[1] or 0):
        return None
    return float(found[1]) if found[1] else None, float(found[2])


def _find_whole(text: str, grades: Sequence[re.Match[str]], scale: Scale, bare: bool) -> re.Match[str] | None:
    """Return the grade of a text that counts: the last one for the whole, else the last one after a label, else the
    last one on the requested scale.

    Returns None if each has another subject, as in `Clarity: 3/10, Depth: 8/10`, or if sentences give several.
    """
    parts = [_part_before(text, one.start(), not bare) or _part_behind(text, one.end()) for one in grades]
    whole = [one for one, part in zip(grades, parts, strict=True) if _OF_ALL.search(part)]
    given = {next(filter(None, one.groups())) for one in grades}
    if not whole and len(set(parts)) > 1 and all(parts) and len(given) > 1:
        return None
    if parts[-1] or whole or not bare:
        return [*grades, *whole][-1]
    asked = [one for one in grades if one[0].endswith(f"/{scale.best:g}")]  # `8/10 because of 3/4`
    return [*grades[-1:], *asked][-1] if len({one[0].split("/")[0].strip() for one in asked}) < 2 else None


def _share(text: str, asked: Scale, stated: _Stated | None, words: str) -> tuple[float, str] | None:
    scale = asked
    if stated is not None and not (stated[1] == asked.best and stated[0] in (None, min(asked[:2]))):
        if asked.low > asked.high:  # their scale does not tell its best end
            return None
        scale = Scale(stated[0] or 0.0, stated[1])
    found = re.search(rf"(?i){_VALUE}", text)
    share = scale.share(found[0], stated is not None) if found is not None else None
    return None if share is None else (share, words)


def read_score(found: Mapping[str, Any]) -> tuple[float, str]:
    """Return (score, words) from a verifier's outputs. Raise NodeError if there is no score: that is the verifier's
    bug."""
    last = list(found.values())[-1] if found else None
    value, feedback = found.get("score", last), found.get("feedback", "")
    if isinstance(value, Mapping):
        value, feedback = value.get("score"), value.get("feedback", feedback)
    elif isinstance(value, list | tuple) and len(value) == 2:
        value, feedback = value
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise NodeError("verifier", f"a verifier gives true, false or a number in [0, 1], not {value!r:.80}")
    return float(value), str(feedback or "")

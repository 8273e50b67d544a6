"""The scale that a rubric asks for, read from its words.

One file: patterns on the text just before and just after a number tell whether it may be a grade, and the rules read
nothing else. So the work is linear, and a rule is a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from workbench_kit.answers.scale_ends import is_turned
from workbench_kit.answers.scales import UNREAD, Scale

#: Numbers of a rubric that are read: of up to three digits, and only the first ones. `3-5` has no -5.
_NUMBER = re.compile(r"(?<!\d)(?<!\d\.)((?:(?<![\w.)%])(?<![\d)%]\s)-)?(?:1000|\d{1,3})(?:\.\d{1,2})?)%?(?!\d|\.\d)")
_MINUS = re.compile(r"(?i)(?<![\w)%\]])[\u2212\u2013](?=\d)|(?:(?<=\bfrom )|(?<=\bbetween ))minus (?=\d)")
_MAX_NUMBERS = 400
_DIGITS = {word: str(n) for n, word in enumerate("zero one two three four five six seven eight nine ten".split())}
_UNITS = (
    r"(?:points?|pts?|stars?|marks?|punkten?|sternen?|puntos?|estrellas?|pontos?|punti|stelle|étoiles|балл\w{0,3})(?!\w)|"
    r"[分点점]"
)
_WRITTEN = re.compile(
    rf"(?i)\b(?:{'|'.join(_DIGITS)})\b(?=[- ](?:\([^()\n]{{1,40}}\) )?(?:(?:to|or|and|point)\b|{_UNITS}))|"
    rf"(?:(?<=\bto )|(?<=\bof )|(?<=\bor )|(?<=\bmax ))(?:{'|'.join(_DIGITS)})\b"
)
_TO = (
    r"[-\u2212\u2013\u2014~\u301c\uff5e]|-to-|\.{2,3}|から|에서|부터|到|至|<=?\s?\w{1,20}\s?<=?|≤\s?\w{1,20}\s?≤|"
    r"\b(?:to|and|through|thru|or|bis|und|à|et|a|al|y|até|e|tot(?: en met)?|till|do|до|sampai|đến)\b"
)
#: Between two numbers: `1 (bad) to 5 (good)`, `from 0 = wrong to 5`; `0, 1 or 2`.
_TO_THE_NEXT = re.compile(
    rf"(?i) {{0,3}}(?:\([^()\n]{{0,60}}\)|[=:] {{0,3}}[\w ]{{1,40}}?|{_UNITS})? {{0,3}}(?:{_TO})\s{{0,3}}"
)
_OR_THE_NEXT = re.compile(r"(?i)\s{0,3}(?:[/|]|,?\s(?:or|and)\b|,)\s{0,3}")
#: After a number: its possible subject, if it is a grade. Any other word makes it a count, as in `5 reasons`.
_UNIT = re.compile(rf"(?i)[- ]?(?:{_UNITS}|(?:point[- ])?(?:likert[- ])?(?:scale|rating|score)(?!\w))")
_EACH = re.compile(rf"(?i)[- ]?(?:{_UNITS}) (?:for|if|when|per|each)\b")
_NO_COUNT = re.compile(
    r"(?i)\s{0,3}(?:\Z|[^\w\s]|\n|打分|评分|まで|까지|之间|(?:only|scale|rating|score|likert|inclusive|where|for|on|based|by|how|each|every|"
    r"according|and|or|as|to|the|per|in|if|when|with|without|whether|means?|is|otherwise|using|please|\w{4,12}ing)\b)"
)
#: Before a number: words that ask for a grade, the first of them for nothing else.
_FILLERS = (
    r"\W{0,6}(?:(?:of|it|with|in|as|is|from|either|between|the \w{1,20}|an? \w{1,20}|int(?:eger)?|float|number|von|"
    r"entre|zwischen)\W{1,3}){0,3}\Z"
)
_RATES = re.compile(r"(?i)\b(?:scored?|scoring|grade|graded|rate|rated|rating|scale|likert)\b" + _FILLERS)
_ASKS = re.compile(
    r"(?i)(?:\b(?:from|scales?(?: of| from)?|range(?: of)?|scores|give|award|assign|answer|reply|respond|return|output|"
    r"write|choose|select|pick|one of|values?|number|integer|digit|interval|probability|confidence|literal|enum|in|"
    r"binary|von|zwischen|skala|bewert\w{0,4}|notez|de|del|entre|escala|scala|da|puntúa|califica|avalie|van|dari|från|od|từ)|"
    r"échelle|от|оцен\w{0,4}|من|从|评分|打分)" + _FILLERS + r"|[\"']\s?:\W{0,4}\Z"
)
_NO_CONDITION = r"(?!\b(?:if|when|unless|whether|that|which)\b)"
#: The same, in a clause that grades. After `if`, dates and counts are between two numbers, too.
_GRADES = re.compile(
    r"(?i)\b(?:scores?|scored|scoring|grades?|graded|rate(?! of)|rated|ratings?|points|marks?)\b"
    rf"(?:{_NO_CONDITION}[^.,;:\n]){{0,60}}\W\Z"
)
#: `Coherence (1-5)`: a criterion with its scale in brackets.
_CRITERION = re.compile(r"(?:[\n.,;:?]|\b(?:and|or)\b)\W{0,6}(?:[^\W\d]{1,20} ){1,6}[(\[]\Z")
#: Before the lowest and the best grade of a scale; the last ones with a unit behind it.
_MIN = re.compile(r"(?i)\b(?:min(?:imum)?|lowest|worst|ge|gte)\b[^.\n\d]{0,20}\W\Z")
_BEST = re.compile(
    r"(?i)(?:\S.{0,90}\s|\n)out of \Z|\b(?:score|grade|rating|mark|note)\b\W{0,4}_{0,5}\s?/\s?\Z|\bsur \Z|满分为?\Z|"
    r"\b(?:max(?:imum|\.)?|highest|best|top|total)(?: possible)?(?: (?:scores?|grades?|ratings?|marks?|points?|value))"
    r"\b[^\w,]{1,4}(?:is |of |are )?\Z|\b(?:max(?:imum)?|le|lte)\b\W{1,4}\Z"
)
_BEST_OF_UNITS = re.compile(
    r"(?i)(?:[\n.;:,(\[]\W{0,3}(?:a )?|\b(?:give|award|earns?|gets?|receives?|scores?|grade)\b[^.\n]{0,20} )"
    r"(?:up to|at most|max(?:imum)?(?: of)?|out of|total)\W{1,2}\Z"
)
#: Where the first of several grades with their words begins, as in `5: perfect; 3: usable`, and where another does.
_NAME = r"(?:(?:scores?|grades?|ratings?|levels?)(?: of)?[\s_]?|an? )?\Z"
_FIRST = re.compile(
    r"(?i)(?:\n[\s\W]{0,6}|[.:;?!(\u2022]\W{0,6}|"
    r"\b(?:scored?|graded?|rated?|give|award|assign|answer|reply|respond|return|output|write|where)\b\W{1,3}"
    r"(?:(?:it|of|as|is|an?|the|with|verdict|score|grade|rating)\W){0,3})" + _NAME
)
_OTHER = re.compile(r"(?i)(?:[,/]|\b(?:or|and|else|otherwise)\b)\W{0,4}" + _NAME)
_ELSE = re.compile(r"(?i)\b(?:else|otherwise)\W{1,3}(?:(?:return|give|output|score|answer)\s)?\Z")
#: After a grade, before its words; `1.`, `1)` and `1 ` at the start of a line may number the criteria.
_SIGN = re.compile(
    rf"(?i)(?:_\w{{1,20}})?\s?(?:{_UNITS})?[*_`\"')\]>]{{0,3}}\s{{0,2}}"
    r"(?:[=|\t\u2013\u2014(→]|:(?!\d)|->| - |"
    r"\b(?:if|when|for|means?|is|being|indicates?|represents?|otherwise|else|wenn)\b|(?=the (?:best|worst)\b))"
)
_LISTED = re.compile(r"[.)\]]{1,2}[ \t]|[ \t](?=[^\W\d])")
#: `excellent (3)`, `A = 4`: the words before a grade, and the text after it.
_NAMES = re.compile(
    r"(?:[\n.:;,|/]|\b(?:or|and)\b)\W{0,3}([^\W\d]{1,20}(?: [^\W\d]{1,20}){0,3}) ?(?:\(|[=:\u2013→] ?|-> ?|- |(?<= ))\Z"
)
_NAMED = re.compile(rf"(?i)\s?(?:{_UNITS})?\)?\s{{0,2}}(?:[,;.:\n|/]|\Z|or\b|and\b)")
#: Words of a low grade and of a high one, which tell grades from criteria: `1: poor, 2: fair, 3: good`.
_POOR = re.compile(
    r"(?i)\b(?:wrong|incorrect\w*|inaccurate|poor\w*|bad\w*|terrible|useless|irrelevant|not|no|none|never|worst|lowest|"
    r"low|fail\w*|un\w+|harmful|rude|disagree|weak|lacks?|missing|little|barely|part\w*|awful|minimal|ignores?|dull|"
    r"beginning|beginner|novice|emerging|false)\b"
)
_FINE = re.compile(
    r"(?i)\b(?:perfect\w*|excellent\w*|great|good|right|correct\w*|best|outstanding|strong\w*|agree|high\w*|full\w*|"
    r"complete\w*|exemplary|advanced|mastery|always|very|kind|true|yes|pass\w*|extremely|entirely|totally)\b"
)
_IF = re.compile(r"(?i)\b(?:if|when|for|otherwise|else|wenn)\b")
#: Words that give a grade, possibly on a scale that is not read, as in `award 2`; and words that subtract points.
_AWARDS = re.compile(
    r"(?i)(?:\b(?:scores?|scored|graded?|rated|rate(?! of)|ratings?|awards?|assign|worth|earns?|"
    r"start(?:ing)? (?:with|at|from)|bewert\w{0,4}|notez|puntúa|califica|avalie)\b|оцен\w{0,4}|评分|打分|点数|점수)"
    rf"(?:{_NO_CONDITION}[^.;\n]){{0,40}}\Z"
)
_GRADING = re.compile(
    r"(?i)\b(?:scor|grad|rat(?:e|ing)|judg|evaluat|mark|point|star|award|assign|worth|earn|scale|level|best|worst|max)|"
    r"оцен|балл|分|点|점"
)
#: Before the only range of a rubric, which may have any values.
_FROM = re.compile(r"(?i)\b(?:from|between|range(?: of)?|scale(?: of)?|von|de|entre|zwischen)\W{1,3}\Z|[\[(]\Z")
_GIVES = re.compile(r"(?i)(?:\b(?:gives?|gets?|add)\s|[(\[])\Z")
#: Contents that the answer must have: no grades.
_SAYS = re.compile(r"(?i)\b(?:says|states|mentions|recommends|explains|must (?:say|state|mention))\b[^.;\n]{0,100}\Z")
_TAKES_OFF = re.compile(
    r"(?i)\b(?:deduct|subtract|minus|lose[sd]?|take|remove|penali[sz]e|dock|reduce|lower)\b[^.;\n]{0,20}\Z"
)


class _Number(NamedTuple):
    """A number of a rubric, with the text before it, from the previous number on, and after it, up to the next one."""

    value: float
    before: str
    behind: str
    percent: bool

    @property
    def asked(self) -> bool:
        return any(one.search(self.before) for one in (_RATES, _ASKS, _GRADES))

    @property
    def counted(self) -> bool:
        """Return True if it counts something, as in `5 reasons`."""
        return not (_UNIT.match(self.behind) or _NO_COUNT.match(self.behind))

    @property
    def words(self) -> str:
        """Return the words of the grade, if it is one."""
        return re.split(r"[\n;]", self.behind, maxsplit=1)[0]


@lru_cache(maxsize=256)
def choose_scale(rubric: str, best: int | None = None) -> Scale:
    """Return the scale to ask a judge for: the one that the rubric states, or else 0 to the best grade, by default 10.

    It is `UNREAD` if the rubric seems to state a scale, or states several, and no best grade is given. It is open if
    some number of the rubric may still be a grade.
    """
    numbers = _read_numbers(rubric)
    found = _find_scales(numbers, best is None) or {one for one in _find_scales(numbers) if one.best == best}
    found = {one for one in found if one.best == best} or found
    sure = {*filter(_is_usual, found)} or (found if _has_one_range(numbers) else set())
    if len(sure) == 1:
        return sure.pop()
    if best is not None:
        return Scale(0.0, float(best))
    if found or _states_grades(numbers):
        return UNREAD
    return Scale(0.0, 10.0, open=_may_state_grades(numbers))


def find_scales(rubric: str, described: bool = True) -> set[Scale]:
    """Return the scales that a rubric states, as `from 0.0 to 1.0`, `1-5`, `out of 5`.

    Args:
        rubric: the criteria.
        described: also read the scale of grades that are given by words, as `5: perfect, 0: wrong`.
    """
    return _find_scales(_read_numbers(rubric), described)


def _find_scales(numbers: Sequence[_Number], described: bool = True) -> set[Scale]:
    found = set[Scale]()
    for read in (_asked_scales, *([_described_scales] if described else []), _best_scales):
        found |= {*read(numbers)}
        if any(map(_is_usual, found)):
            break
    return {_turned(one, numbers) for one in found if one.low != one.high}


def _has_one_range(numbers: Sequence[_Number]) -> bool:
    """Return True if one range is asked for, `from 3 to 7` or `[-1, 1]`, and no other number of the rubric is
    in one."""
    ranges = [(one, two) for one, two in pairwise(numbers) if _is_range(one, two)]
    return len(ranges) == 1 and bool(_FROM.search(ranges[0][0].before))


def _is_range(one: _Number, two: _Number) -> bool:
    return bool(_TO_THE_NEXT.fullmatch(one.behind)) or (_is_enclosed(one, two) and one.behind.strip() == ",")


def _is_enclosed(one: _Number, two: _Number) -> bool:
    return one.before[-1:] in ("[", "(", "{") and two.behind[:1] in ("]", ")", "}")


def _may_state_grades(numbers: Sequence[_Number]) -> bool:
    """Return True if a range, levels, or a number in a clause about grades, may be a scale that is not read."""
    own = [one for one in numbers if not (one.counted or one.value in (0, 10))]
    begun = [one for one in own if _FIRST.search(one.before) or _OTHER.search(one.before)]
    levels = [one for one in begun if _SIGN.match(one.behind)]
    ranges = any(_is_range(one, two) and not two.counted for one, two in pairwise(numbers))
    clauses = (
        " ".join((re.split(r"[.;\n]", one.before)[-1], re.split(r"[.;\n]", one.behind)[0]))
        for one in own
        if not ("\n" in one.before and _LISTED.match(one.behind))
    )
    return ranges or len(levels) > 1 or any(map(_GRADING.search, clauses))


def _states_grades(numbers: Sequence[_Number]) -> bool:
    """Return True if a rubric seems to state grades. Each of 0 and 10 is on the scale that is asked for by default."""
    if len(numbers) == _MAX_NUMBERS:
        return True
    for one, two in pairwise(numbers):
        graded = _RATES.search(one.before) or (_GRADES.search(one.before) and not two.counted)
        if _TO_THE_NEXT.fullmatch(one.behind) and graded:
            return True
    levels = [one for one in numbers if _FIRST.search(one.before) and _SIGN.match(one.behind)]
    worded = all(any(kind.search(one.words) for one in levels) for kind in (_POOR, _FINE))
    if len({one.value for one in levels}) > 1 and (worded or not _rise_from_1(levels)):
        return True
    units = [one for one in numbers if _UNIT.match(one.behind) and not _TAKES_OFF.search(one.before)]
    if len(units) > 1 or any(_GIVES.search(one.before) or _EACH.match(one.behind) for one in units):
        return True
    for one, two in pairwise([*numbers, numbers[-1]] if numbers else []):
        last = two if _TO_THE_NEXT.fullmatch(one.behind) else one
        graded = one.value not in (0, 10) and _AWARDS.search(one.before) and not last.counted
        if graded and not _TAKES_OFF.search(one.before):
            return True
    return False


def _read_numbers(rubric: str) -> list[_Number]:
    rubric = _MINUS.sub("-", rubric)
    rubric = _WRITTEN.sub(lambda word: _DIGITS[word[0].lower()], rubric)
    found = [*islice(_NUMBER.finditer(rubric), _MAX_NUMBERS)]
    ends = [0, *(one.end() for one in found)]
    starts = [*(one.start() for one in found), len(rubric)]
    texts = [rubric[a:b] for a, b in zip(ends, starts, strict=True)]
    texts[0] = f"\n{texts[0]}"
    whole = len(found) < _MAX_NUMBERS  # a truncated list keeps all, so that its reader notices
    return [
        _Number(float(one[1]), a[-100:], b[:100], one[0].endswith("%"))
        for one, (a, b) in zip(found, pairwise(texts), strict=True)
        if not (whole and _SAYS.search(rubric[max(0, one.start() - 120) : one.start()]))
    ]


def _is_usual(scale: Scale) -> bool:
    low, high = sorted(scale[:2])
    return high <= 100 and ((low == 0 and high >= 1) or (low == 1 and high >= 3))


def _turned(scale: Scale, numbers: Sequence[_Number]) -> Scale:
    """Return the scale from its worst grade on: from 5 to 1 for `1 (best) to 5 (worst)` or `1 to 5, where 1 is
    best`."""
    low, high = ([words for one in numbers if one.value == end and (words := _level(one))] for end in scale[:2])
    ends = [one for one in numbers if one.value in scale[:2]]
    around = [text for one in ends for text in (one.behind, f";{one.before}")]
    turned = is_turned(low, high, around, marks=scale[:2] in ((1, 5), (1, 6)))
    return Scale(scale.high, scale.low) if turned else scale


def _level(number: _Number) -> str:
    """Return the words of a level; "" for none, and for conditions: in `1 if it does not say so` the grade is the best
    one."""
    sign = _SIGN.match(number.behind)
    return "" if sign is None or _IF.search(sign[0]) else number.behind[sign.end() :]


def _opens(number: _Number) -> bool:
    return "\n" in number.before and not number.before.strip("\n\t \"'*_#|([{")


def _asked_scales(numbers: Sequence[_Number]) -> Iterator[Scale]:
    """Yield the scales of `from 1 to 5`, `[0, 1]`, `1-5 stars`, `clarity (1-5)`, of `0, 1 or 2`, and of the bands of
    `1-3: poor, 4-5: good`."""
    pairs, bands = list[Scale](), set[Scale]()
    for one, two in pairwise(numbers):
        enclosed, joint = _is_enclosed(one, two), _TO_THE_NEXT.fullmatch(one.behind)
        if not _is_range(one, two) or (two.percent and two.value != 100):
            continue
        either = re.search(r"(?i)\b(?:or|and)\s*\Z", one.behind) and not re.search(r"(?i)\bbetween\b", one.before)
        if either and {one.value, two.value} != {0, 1}:
            continue
        scale = Scale(min(one.value, two.value), max(one.value, two.value))
        if joint and not either and (enclosed or _SIGN.match(two.behind)):
            bands.add(scale)
        sure = _RATES.search(one.before) or _UNIT.match(two.behind) or "<" in one.behind or "\u2264" in one.behind
        if sure or (enclosed and _CRITERION.search(one.before)) or ((one.asked or _opens(one)) and not two.counted):
            if sure or _is_usual(scale) or _GRADES.search(one.before):
                pairs.append(scale)
    if len(bands) > 1 and all(0 <= two.low - one.high <= 1 for one, two in pairwise(sorted(bands))):
        yield _ended([end for band in bands for end in band[:2]])
        return
    yield from pairs
    runs = list[list[_Number]]()
    for number in numbers:
        if runs and _OR_THE_NEXT.fullmatch(runs[-1][-1].behind):
            runs[-1].append(number)
        else:
            runs.append([number])
    for run in runs:
        values = {one.value for one in run}
        if (run[0].asked or _opens(run[0])) and not run[-1].counted and (len(values) > 2 or values == {0, 1}):
            yield Scale(min(values), max(values))


def _ended(values: Sequence[float]) -> Scale:
    """Return the scale of some of its grades. One up to 10 or 100 without a stated lowest grade begins at 0."""
    low, high = min(values), max(values)
    return Scale(0.0 if high in (10, 100) and low > 1 else low, high)


def _described_scales(numbers: Sequence[_Number]) -> Iterator[Scale]:
    """Yield the scale whose ends are among the grades that have words: `5: perfect; 3: usable`, `excellent (3)`, `1 if
    it is right, 0 otherwise`, by the first form that has several."""
    for find in (_find_levels, _find_listed, _find_named, _find_binary):
        values = [one.value for one in find(numbers)]
        if len({*values}) > 1:
            yield _ended(values)
            return


def _find_levels(numbers: Sequence[_Number]) -> list[_Number]:
    """Return the grades before their words. Numbers that count up from 1 may number criteria, unless they have words of
    low and high grades."""
    levels = list[_Number]()
    for one in numbers:
        begins = _FIRST.search(one.before) or (levels and _OTHER.search(one.before))
        if begins and (_SIGN.match(one.behind) or (levels and _ELSE.search(one.before))):
            levels.append(one)
    named = levels and re.search(r"(?i)(?:score|grade|rating|level)[\s_]?\Z", levels[0].before)
    if not levels or named or not _rise_from_1(levels):
        return levels
    (fine, poor), (finer, poorer) = (
        (bool(_FINE.search(one.words)), bool(_POOR.search(one.words))) for one in (levels[0], levels[-1])
    )
    turned = len(levels) == 2 and is_turned([_level(levels[0])], [_level(levels[-1])], ())
    return levels if (poor and not poorer) or (finer and not fine) or turned else []


def _find_listed(numbers: Sequence[_Number]) -> list[_Number]:
    """Return the numbers of a list, `1. Poor ... 5. Excellent`, whose ends have words of a low and of a high grade."""
    listed = [one for one in numbers if re.search(r"\n\W{0,6}\Z", one.before) and _LISTED.match(one.behind)]
    if not listed:
        return []
    low, high = (end(listed, key=lambda one: one.value).words for end in (min, max))
    return listed if _POOR.search(low) and _FINE.search(high) else []


def _find_named(numbers: Sequence[_Number]) -> list[_Number]:
    """Return the grades after their words, at least two of which are known as such."""
    named = [(one, words[1]) for one in numbers if (words := _NAMES.search(one.before)) and _NAMED.match(one.behind)]
    known = [words for _, words in named if words in "ABCDEF" or _POOR.search(words) or _FINE.search(words)]
    return [one for one, _ in named] if len(known) > 1 else []


def _rise_from_1(levels: Sequence[_Number]) -> bool:
    return [one.value for one in levels] == [*range(1, len(levels) + 1)]


def _find_binary(numbers: Sequence[_Number]) -> list[_Number]:
    """Return 0 and 1 if they are the only numbers, and each is asked for or has words."""
    own = [one for one in numbers if not one.counted]
    graded = all(
        one.asked or _SIGN.match(one.behind) or _ELSE.search(one.before) or _NAMES.search(one.before) for one in own
    )
    return own if graded and {one.value for one in own} == {0, 1} else []


def _best_scales(numbers: Sequence[_Number]) -> Iterator[Scale]:
    """Yield the scales with a stated best grade: `a 5-point scale`, `a score out of 5`, `max score: 5`."""
    least = next((one.value for one in numbers if _MIN.search(one.before)), 0.0)
    for one in numbers:
        if re.match(r"(?i)[- ](?:point|star)s?[- ](?:likert[- ]|rating[- ])?(?:scale|rating|likert)\b", one.behind):
            yield Scale(1.0, one.value)
        unit = _UNIT.match(one.behind)
        best = unit and (_BEST_OF_UNITS.search(one.before) or re.match(r" max(?:imum)?\b", one.behind[unit.end() :]))
        if best or (_BEST.search(one.before) and not one.counted):
            yield Scale(least, one.value)
    shares = [(one, two) for one, two in pairwise(numbers) if one.behind.strip() == "/" and _SIGN.match(two.behind)]
    if len(shares) > 1 and len({two.value for _, two in shares}) == 1:
        yield Scale(0.0, shares[0][1].value)

"""The reader of numbers: in answers, labels and grades.

Reads signs, currencies, groups of thousands and decimals of either kind (1,234.5, 1.234,5 and 1 234,5), powers,
fractions, and words such as million in several languages. Units are not read: 5 km is 5, and so are 5 m and 5M.
Numbers that are joined as a range, a choice, a time, a date or a calculation have no value.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from workbench.base.text import without_unseen
from workbench_kit.answers.conclusions import CORRECTS, SPACELESS, ends_of, find_conclusions

#: Words for powers of ten, and letters after an amount of money: $1.5M.
_POWERS = {
    3: "thousand thousands tausend tsd тыс тысяч тысячи тысяча",
    4: "万 萬 만",
    5: "lakh lakhs",
    6: "million millions mn mio millionen millón millones milhão milhões milioni миллион миллионов млн",
    7: "crore crores",
    8: "亿 億 억",
    9: "billion billions bn mrd milliarde milliarden milliard milliards miliardo miliardi миллиард миллиардов млрд",
    12: "trillion trillions billionen",
}
_WORDS = {word: 10**power for power, words in _POWERS.items() for word in words.split()}
_SHORT = {"k": 10**3, "m": 10**6, "b": 10**9}
_WORD = "|".join(word if ord(word[0]) > 0x3000 else rf"{word}(?!\w)" for word in sorted(_WORDS, key=len, reverse=True))
_DIGITS = r"\d+(?:[.,'\u2019\u00a0]\d+)*"
_NUMBER = re.compile(
    rf"""(?<![^\W_{SPACELESS}가-힣]) (?<![^\W\d_{SPACELESS}가-힣]-) (?<!\d\.) (?<!\d,)  # no name (CO2, GPT-4), 1.2.3
    (?: (?<!\^)(?<!\^[-{{])(?<!\^\{{-) | (?=\d+\}}?\s?[-+*/]\s?\d) )                 # no power of a unit: cm^2
    (?P<sign> (?<![\d)])(?<![\d)]\s)[-+] | (?<![\w)%])(?<![\w)%]\s)[-+]\s )?           # no dash between two numbers
    (?P<currency> [$\u20ac\u00a3\u00a5\u20b9]\s? )? (?P<second>-)?
    (?!0x[\da-f]) (?: (?P<whole>\d+)\ (?=\d+/\d+(?![.,]?\d)) )?                      # 1 1/2
    (?P<digits> {_DIGITS} | (?<![\w.])\.\d+ )
    (?: (?P<ten> e | \s?[x\u00d7*\u00b7]\s?10\s?(?:\^|\*\*)\s? | \^ | \*\* )
        [{{(]?(?P<power>[-+]?\d{{1,4}})(?!\w)[}})]? )?
    (?: \s?/\s?(?P<below>\d+(?:\.\d+)?)(?![.,/]?\d) )?
    (?: \s?(?P<percent>%) | [\ \u00a0]?(?P<word>{_WORD}) | (?(currency)(?P<short>[kmb]) (?!\w)|(?!)) )?""",
    re.VERBOSE | re.IGNORECASE,
)
#: Digits with separators that are one number: thousands groups, then the digits after a decimal mark.
_RUN = re.compile(
    r"[1-9]\d{0,2}(?:,\d{3})+(?:\.(\d+))?|[1-9]\d?(?:,\d\d)+,\d{3}(?:\.(\d+))?|[1-9]\d{0,2}(?:\.\d{3})+,(\d+)|"
    r"[1-9]\d{0,2}(?:\.\d{3}){2,}|[1-9]\d{0,2}(?:'\d{3})+(?:[.,](\d+))?|\d*[.,](\d+)|\d+"
)
_MONTH = r"\b(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)(?:uary|ruary|ch|il|ust|ember|ober)?\b\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
#: Forms that are rewritten before numbers are read, in this order.
_FORMS = [
    (re.compile(pattern), new)
    for pattern, new in (
        (r"(?<=\w)(?=[\u00bc-\u00be\u2150-\u215e])", " "),  # 1½
        (r"(?<![\d)])(?<![\d)]\s)(?:\b(?i:minus|negative)\s|[\u2010\u2011\u2013\u8d1f])(?=[\d$.])", "-"),
        (r"\\(?:times|cdot)(?![a-z])", "\u00d7"),
        (r"(?<!=)(?<!=\s)\b\d+[xyz]\s?=\s?-?\d+(?:\.\d+)?\b", ""),
        (r"(?<=\d)_(?=\d{3})|\\,", "\u00a0"),
        (r"\{,\}", ","),
        (r"(\\[dt]?frac)(\d)(\d)(?!\d)", r"\1{\2}{\3}"),
        (r"\\[dt]?frac\s*\{\s*(-?[\d.,]+)\s*\}\s*\{\s*([\d.,]+)\s*\}", r"\1/\2"),
        (r"\s?(?:\u00b1|\+/-|\\pm)\s?[\d.,]+", ""),  # a tolerance
        (r"\b\d\d(?:\.\d)?\s?%(?=\s(?:CI|confidence|credible)\b)", ""),  # the level of an interval
        (r"(?<=\S)\s*(?:\u2248|\\approx\b|~=)\s*", " = "),
        (rf"(?i:{_MONTH}\s{_DAY},?\s\d{{4}}|{_DAY}\s(?:of\s)?{_MONTH},?\s\d{{4}})", "1-2-3"),  # a date
    )
]
#: Thousands with spaces, as in most of Europe.
_SPACED = re.compile(r"(?<![\w.,/])[1-9]\d{0,2}(?: \d{3})+(?![\w/])")
#: Three or more numbers, also of things, none of which is chosen.
_N, _THING = r"\d+(?:\.\d+)?", r"\s[^\W\d]+"
_LIST = re.compile(
    rf"(?<![\w.,$-])(?:{_N}(?:,\s(?:and\s)?{_N}(?![.,]?\d)){{2,}}|"
    rf"{_N}{_THING}(?:,\s{_N}{_THING})+,?\s(?:and\s)?{_N}{_THING})(?!\w|\s?=)"
)
_SIGNS = str.maketrans("\u2212\u066b\u066c\u2044\u2009\u202f", "-.,/\u00a0\u00a0")
_COMPATIBLE = re.compile("[\uff00-\uffef\u00bc-\u00be\u2150-\u215e]")
_SUPERSCRIPT = re.compile("(?<=10)[\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
#: The number of an item, or the word for number, before an answer that is a number.
_NUMBERED = re.compile(r"^(?:1[.)]\s(?=.*\d)|\d{1,2}[.)]\s+(?=\S*\d\S*(?:\s\w+)?$)|(?i:no)\s(?=\d+$))")
#: Links between numbers: a choice, the next part of a solution (x = 3, y = 4), a range or a calculation, units of
#: different size (3 h 30 min).
_OR = r"\b(?:or|oder|ou|o|или)\b|或"
_JOINS = re.compile(
    rf"(?i)\s*(?:(?:}}|\\text\s*\{{)\s*)*%?\s*(?:(?P<or>(?:,\s)?(?:{_OR})|(?:,|;|\band\b)(?=\s*[^\W\d]\s*=))|"
    rf"\b(?:to|bis|à|a|до|and|und|et|y|(?:divided|multiplied) by)\b|%\sof\b|\.\.\.|"
    rf"[<\u2264]=?\s*[^\W\d]\s*[<\u2264]=?|x(?!\s*[^\W\d])|[至到~\u301c\uff5e\u2013\u2026+*\u00d7\u00f7{{/-]|"
    r"(?:小?[时時]間?|std|h(?:rs?|ours?)?|min(?:utes?)?|(?:day|week|month|year|lb|pound|degree)s?|f(?:oo|ee)?t|['\u2032\u00b0])"
    r"\.?,?\s*(?:and|und|et|y)?)[\s}]*(?:[^\W\d]\s*=\s*)?[$\u20ac]?|:|"
)
#: Text between a calculation and its result.
_EQUALS = re.compile(r"[\s)]*(?:=|\b(?:is|are|equals|makes?|gives)\b)\s*")
#: Marks of a number that is part of something not computed: a root, pi, a range, a choice.
_PART_OF = re.compile(
    r"(?i)(?:\u221a|\\sqrt\s*\{?|(?:\\pi|\u03c0)\s*\}?\s*[{/]\s*|\b(?:between|zwischen|entre)\s[$\u20ac]?)\Z"
)
_HAS_PART = re.compile(rf"(?i)\s?(?:\\sqrt|\u221a|\\?pi\b|\u03c0|(?:{_OR})\s*[^\W\d]\s*=)")
_DENIED = re.compile(r"\b(?i:not|nicht|pas|no|rather than|instead of)\s+[$\u20ac]?$|n[\u2019']t\s+[$\u20ac]?$")
#: Statements that there is no answer.
_NONE = re.compile(
    r"(?i)\b(?:none of the|not enough (?:information|data)|(?:cannot|can[\u2019']t|impossible to) (?:be )?"
    r"(?:determine|answer|compute|calculate|know|say|tell)d?)\b"
)
#: Text after a number that is a paragraph on its own, or the answer at the beginning of one: a unit and an explanation.
#: `42 apples, which took 3 steps.`
_ALONE = re.compile(r"[*)]*(?:\s?[^\W\d]++){0,2}[ \t*).]*(?:\n\s*\n|\Z)")
_BEGINS = re.compile(
    r"[*)$]*\n|(?:\s?[^\W\d]++){0,3}\s*(?:[,.;:(\n!](?!\d)|\u2014|\s-\s|$|=|"
    r"\b(?:in|on|at|of|for|by|from|with|after|since|as|because)\b)"
)
#: Words of a calculation, whose last number is the answer.
_REASONS = re.compile(r"(?i)=|\b(?:so|thus|therefore|hence|total|altogether|left|leaving|leaves|remain\w*|makes?)\b")
#: A number that tells where or when another one holds: `42 in 2021`, `42 apples in 2 boxes`.
_ASIDE = re.compile(
    rf"(?i)(?<=\d)([^\W\d]*(?: [^\W\d]+){{0,2}}?)(?: (?:in|within|per|every|en|dans|pro|out of|after|as of) {_DIGITS}|"
    r"(?:,? (?:because|since|weil|porque|parce que)\b|,?因为)(?:(?!\.\s|\n).)*)"
)
#: Text between numbers that form more than a list.
_SAYS = re.compile(r"\b(?!(?:and|und|et|y)\b)\w|[\\=]|####")
_BRACKETED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")


class Number(NamedTuple):
    """A number in a text. A whole number is an int, exact however long. percent: whether % follows it."""

    value: float
    start: int
    end: int
    percent: bool = False


def normalise(text: str) -> str:
    """Return a text with ASCII numbers, LaTeX fractions as 1/2, and no invisible characters."""
    if not text.isascii():
        text = _SUPERSCRIPT.sub(lambda found: "^" + unicodedata.normalize("NFKC", found[0]), without_unseen(text))
    for pattern, new in _FORMS:
        text = pattern.sub(new, text)
    return _COMPATIBLE.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text).translate(_SIGNS)


def find_numbers(text: str) -> Iterator[Number]:
    """Yield the numbers in a normalised text. Lists such as 1,2,3 are several, versions such as 1.2.3 none."""
    for found in _NUMBER.finditer(text):
        for place, value in enumerate(_read_digits(found["digits"])):
            sign = -1 if not place and ("-" in (found["sign"] or "") or found["second"]) else 1
            with suppress(ValueError, OverflowError, ZeroDivisionError):
                if math.isfinite(number := _finished(found, value) * sign):
                    yield Number(number, found.start(), found.end(), found["percent"] is not None)


def _finished(found: re.Match[str], value: float) -> float:
    """Return a number with its power, fraction and word applied."""
    if found["power"]:
        is_ten = found["ten"] not in ("^", "**")
        value = float(f"{value}e{found['power']}") if is_ten else float(value) ** int(found["power"])
    if found["below"]:
        value = value / float(found["below"]) + int(found["whole"] or 0)
    return value * (_WORDS | _SHORT).get((found["word"] or found["short"] or "").lower(), 1)


def _read_digits(run: str) -> list[float]:
    """Return the numbers in digits with separators: one, those of a list, or none for a version."""
    run = re.sub("[\u2019\u00a0]", "'", run)
    if found := _RUN.fullmatch(run):
        tail = found[found.lastindex] if found.lastindex else ""
        head = re.sub(r"\D", "", run[: len(run) - len(tail)])
        return [float(f"{head or 0}.{tail}") if tail else int(head) if len(head) <= 300 else float(head)]
    parts = re.split("[,']", run)
    return [one for part in parts for one in _read_digits(part)] if len(parts) > 1 else []


@lru_cache(maxsize=8)
def _quantities(text: str) -> list[Number]:
    """Return the quantities that a normalised text states. Joined numbers count as one: nan, unless they are equal
    choices, or a calculation's result follows. Denied ones are left out: `not 12 but 14` states 14."""
    found, denied = list[Number](), set[int]()
    for one in find_numbers(text):
        before = text[max(0, one.start - 20) : one.start]
        if _DENIED.search(before):
            denied.add(one.start)
        if _PART_OF.search(before) or _HAS_PART.match(text, one.end):
            one = one._replace(value=math.nan)
        last, between = found[-1] if found else one, text[found[-1].end : one.start] if found else "none"
        if joins := _JOINS.fullmatch("%" * last.percent + between):  # `of` joins only after a share: 15% of 200
            same = joins["or"] and one.value == last.value
            one = Number(one.value if same else math.nan, found.pop().start, one.end, one.percent)
        elif math.isnan(last.value) and _EQUALS.fullmatch(between):
            found.pop()
        found.append(one)
    return [one for one in found if one.start not in denied]


def read_number(text: str, field: str = "answer") -> tuple[Number, bool] | None:
    """Return (the number that a text gives, whether it is among other words); None if there is none.

    field: the name of the output.
    """
    text = _SPACED.sub(lambda groups: groups[0].replace(" ", "\u00a0"), _LIST.sub("1-2-3", normalise(ends_of(text))))
    bare = text.strip().strip("\"'`*").strip().rstrip(".").rstrip()
    bare = _NUMBERED.sub("", bare) if "\n" not in bare else bare
    if not (numbers := _quantities(bare)):
        return None
    whole = len(numbers) == 1 and (numbers[0].start, numbers[0].end) == (0, len(bare))
    found = numbers[0] if whole else _choose(bare, numbers, field)
    return (found, not whole) if found and not math.isnan(found.value) else None


def _choose(text: str, numbers: list[Number], field: str) -> Number | None:
    """Return the quantity that is the answer: a paragraph on its own, boxed or introduced, at the beginning of a short
    answer, else the last one."""
    outside, stated = _without_brackets(text)
    if not stated:
        return None
    first, rest = numbers[0], text[numbers[0].end :]
    listed = len(numbers) > 1 and not text[first.end : numbers[1].start].strip(" ,;")
    begins = not (listed or math.isnan(first.value)) and not text[: first.start].strip("\"'`*(~ ")
    corrected = CORRECTS.search(rest)
    if begins and _ALONE.match(rest) and not corrected:
        return first
    for conclusion in find_conclusions(text, field):
        if _quantities(conclusion):
            return _concluded(conclusion)
    if _NONE.search(text):
        return None
    reasoned = corrected or _REASONS.search(_BRACKETED.sub(" ", rest))
    if begins and len(numbers) <= 3 and _BEGINS.match(rest) and not reasoned:
        return first
    if begins and rest.lstrip().startswith("="):
        return _concluded(text)
    return (_quantities(_ASIDE.sub(r"\1", outside)) or stated)[-1]


def _concluded(text: str) -> Number | None:
    """Return the number that a text introduces as the answer: after the last `=`, unless a calculation follows."""
    text, numbers = _without_brackets(text)
    sides = [one for one in numbers if one.end > text.rfind("=")], numbers
    return next((side[0] for side in sides if side and not math.isnan(side[0].value)), None)


def _without_brackets(text: str) -> tuple[str, list[Number]]:
    """Return a text without bracketed parts, if there are numbers outside, and its quantities: none, if it is nothing
    but several."""
    outside = _BRACKETED.sub(" ", text.replace("(=", "="))  # 5 + 3 (= 8)
    outside, stated = (outside, found) if (found := _quantities(outside)) else (text, _quantities(text))
    gaps = zip([0, *(one.end for one in stated)], [*(one.start for one in stated), len(outside)], strict=True)
    if len({one.value for one in stated}) < 2 or any(_SAYS.search(outside[a:b]) for a, b in gaps):
        return outside, stated
    return outside, []

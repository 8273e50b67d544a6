"""The reader of numbers: in answers, labels and grades.

Reads signs, currencies, groups of thousands and decimals of either kind (1,234.5, 1.234,5 and 1 234,5), powers,
fractions, and words such as million in several languages. Units are not read: 5 km is 5, and so are 5 m and 5M. A time
or a date is no number.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from workbench.kit.answers.conclusions import CORRECTS, SPACELESS, ends_of, find_conclusions

#: Signs that stand for ASCII ones: minus and dashes before a digit, Arabic separators.
_SIGNS = str.maketrans(
    {"\u2212": "-", "\u066b": ".", "\u066c": ",", "\u2044": "/", "\u2009": "\u00a0", "\u202f": "\u00a0"}
)
#: Words and dashes that are signs, where no number stands before them.
_MINUS = re.compile(r"(?<![\d)])(?<![\d)]\s)(?:\b(?i:minus|negative)\s|[\u2010\u2011\u2013\u8d1f])(?=[\d$.])")
_TIMES = re.compile(r"\\(?:times|cdot)\b")
#: What groups thousands in programs.
_UNDERSCORE = re.compile(r"(?<=\d)_(?=\d{3})")
#: How far off a number may be.
_TOLERANCE = re.compile(r"\s?(?:\u00b1|\+/-|\\pm)\s?[\d.,]+")
_MONTH = (
    r"\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)\b\.?"
)
#: Numbers that together are a time, a date, a ratio or a solution (x = 3, y = 4), and none by themselves.
_JOINED = re.compile(
    rf"[^\d\n]{{0,20}}\d+(?:(?::\d+)+|(?:[-/]\d+){{2}})\D{{0,20}}"
    rf"|(?i:{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?,?\s\d{{4}}|\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH},?\s\d{{4}})"
    r"|[^\W\d]\s?=\s?-?[\d.]+(?:(?:,|;|\sand)\s*[^\W\d]\s?=\s?-?[\d.]+)+"
)
#: Groups of thousands with spaces between them, as in most of Europe.
_SPACED = re.compile(r"(?<![\w.,/])[1-9]\d{0,2}(?: \d{3})+(?![\w/])")
#: Words for powers of ten.
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
_WORD = "|".join(word if ord(word[0]) > 0x3000 else rf"{word}(?!\w)" for word in sorted(_WORDS, key=len, reverse=True))
#: Behind an amount of money: $1.5M.
_SHORT = {"k": 10**3, "m": 10**6, "b": 10**9}
_DIGITS = r"\d+(?:[.,'\u2019\u00a0]\d+)*"
_NUMBER = re.compile(
    rf"""(?<![^\W_{SPACELESS}가-힣]) (?<!\d\.) (?<!\d,)              # not inside a word (CO2) or a version
    (?P<sign> (?<![\d)])(?<![\d)]\s)[-+] | (?<![\w)])(?<![\w)]\s)[-+]\s )?             # no dash between two numbers
    (?P<currency> [$\u20ac\u00a3\u00a5\u20b9] )?\s? (?P<second>-)?
    (?!0x[\da-f]) (?: (?P<whole>\d+)\ (?=\d+/\d+(?![.,]?\d)) )?                      # 1 1/2
    (?P<digits> {_DIGITS} | (?<![\w.])\.\d+ )
    (?: (?P<ten> e | \s?[x\u00d7*\u00b7]\s?10\s?(?:\^|\*\*)\s? | \^ | \*\* )
        [{{(]?(?P<power>[-+]?\d{{1,4}})(?!\w)[}})]? )?
    (?: \s?/\s?(?P<below>\d+)(?![.,/]?\d) )?
    (?: \s?(?P<percent>%) | [\ \u00a0]?(?P<word>{_WORD}) | (?(currency)(?P<short>[kmb]) (?!\w)|(?!)) )?""",
    re.VERBOSE | re.IGNORECASE,
)
_SHORT_FRACTION = re.compile(r"(\\[dt]?frac)(\d)(\d)(?!\d)")
#: What is before a rounded value; the number of an item.
_ABOUT, _NUMBERED = (
    re.compile(r"(?<=\S)\s*(?:\u2248|\\approx\b|~=)\s*"),
    re.compile(r"^\d{1,2}[.)]\s+(?=\S*\d\S*(?:\s\w+)?$)"),
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(-?[\d.,]+)\s*\}\s*\{\s*([\d.,]+)\s*\}")
_SUPERSCRIPT = re.compile("(?<=10)[\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
#: What every number has, a fraction of one character at least.
_DIGIT = re.compile(r"[\d\u00bc-\u00be\u2150-\u215e]")
#: What follows a number that is the answer by itself, at the beginning of one: `42 apples, which took 3 steps.`
_BEGINS = re.compile(
    r"[*)$]*\n|(?:\s?[^\W\d]++){0,3}\s*(?:[,.;:(\n!](?!\d)|\u2014|\s-\s|$|\b(?:in|on|at|of|for|by|from|with|after|since|as|because)\b)"
)
#: What follows a number that is a paragraph by itself, and the answer, whatever explains it: a unit.
_ALONE = re.compile(r"[*)]*(?:\s?[^\W\d]++){0,2}[ \t*).]*(?:\n\s*\n|\Z)")
#: Words of a calculation, whose last number is the answer.
_REASONS = re.compile(
    r"=|\b(?:so|thus|therefore|hence|total|altogether|left|leaving|leaves|remain\w*|makes?)\b", re.IGNORECASE
)
#: What joins two numbers of which none is the value: a choice, a range, or units of different size (3 h 30 min).
_UNITS = "h|hrs?|hours?|min|minutes?|days?|weeks?|months?|years?|ft|feet|foot|lbs?|pounds?|degrees?|['\u2032\u00b0]"
_JOINS = re.compile(
    rf"(?i)\s*(?:(?:}}|\\text\s*\{{)\s*)*%?\s*(?:\b(?:or|to|oder|bis|ou|à|o|a|или|до)\b|[或至到~\uff5e\u2013+*\u00d7\u00f7/-]|\.\.\.|\u2026|"
    rf"(?:{_UNITS})\.?,?\s*(?:and|und|et|y)?)[\s}}]*(?:[^\W\d]\s*=\s*)?[$\u20ac]?"
)
_BETWEEN = re.compile(r"(?i)\b(?:between|zwischen|entre)\s[$\u20ac]?(?:[\d.,]+ (?:and|und|et|y) [$\u20ac]?)?\Z")
#: What makes a number a part of another, which is not worked out: a root, pi.
_ROOT_OF = re.compile(r"(?:\u221a|\\sqrt\s*\{?|(?:\\pi|\u03c0)\s*\}?\s*[{/]\s*)\Z")
_TIMES_ROOT = re.compile(r"\s?(?:\\sqrt|\u221a|\\?pi\b|\u03c0)")
#: A number that says where or when another one holds: `42 in 2021`, `42 apples in 2 boxes`.
_ASIDE = re.compile(rf"(?i)(?<=\d)((?:\s[^\W\d]+)?) (?:in|within|per|every|en|dans|pro) {_DIGITS}")
_DENIED = re.compile(r"\b(?i:not|nicht|pas|no|rather than|instead of)\s[$\u20ac]?$|n[\u2019']t\s[$\u20ac]?$")
_BRACKETED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")


class Number(NamedTuple):
    """A number in a text. A whole number is an int, exact however long. percent: whether % follows it."""

    value: float
    start: int
    end: int
    percent: bool = False


def normalise(text: str) -> str:
    """A text in which every number is written as ASCII writes it. Places are those of the result."""
    text = _SUPERSCRIPT.sub(lambda found: "^" + unicodedata.normalize("NFKC", found[0]).replace("\u2212", "-"), text)
    if not text.isascii():
        text = re.sub("(?<=\\d)(?=[\u00bc-\u00be\u2150-\u215e])", " ", text)
        text = re.sub("[\uff00-\uffef\u00bc-\u00be\u2150-\u215e]", lambda m: unicodedata.normalize("NFKC", m[0]), text)
        text = text.translate(_SIGNS)
    text = _UNDERSCORE.sub("\u00a0", _TIMES.sub("\u00d7", _MINUS.sub("-", text)))
    if "\\" not in text:
        return text
    text = _SHORT_FRACTION.sub(r"\1{\2}{\3}", text.replace("{,}", ",").replace("\\,", "\u00a0"))
    return _FRACTION.sub(r"\1/\2", text)


def find_numbers(text: str) -> Iterator[Number]:
    """The numbers in a normalised text. Lists such as 1,2,3 are several, versions such as 1.2.3 none."""
    for found in _NUMBER.finditer(text):
        sign = -1 if "-" in (found["sign"] or "") or found["second"] else 1
        values = _read_digits(found["digits"])
        for value in values:
            number = _finished(found, value, sign if value is values[0] else 1)
            if number is not None:
                yield Number(number, found.start(), found.end(), found["percent"] is not None)


def _finished(found: re.Match[str], value: float, sign: int) -> float | None:
    """A number with its power, fraction and word; None for one that is none, or too large."""
    try:
        if found["power"]:
            power = int(found["power"])
            value = float(value) ** power if found["ten"] in ("^", "**") else value * 10.0**power
        if found["below"]:
            value = value / int(found["below"]) + int(found["whole"] or 0)
        value *= sign * (_WORDS | _SHORT).get((found["word"] or found["short"] or "").lower(), 1)
        return value if math.isfinite(value) else None
    except (ValueError, OverflowError, ZeroDivisionError):
        return None


def _read_digits(run: str) -> list[float]:
    """The numbers in digits with separators between them: one, or those of a list, or none of a version."""
    kinds = {char for char in run if not char.isdigit()}
    if not kinds:
        return [_whole(run)]
    last = max(run.rfind(char) for char in kinds)
    head, tail, mark = run[:last], run[last + 1 :], run[last]
    others = {char for char in head if not char.isdigit()}
    if _is_grouped(run, kinds):
        return [_whole(re.sub(r"\D", "", run))]
    if mark in ".," and mark not in others and (not others or _is_grouped(head, others, 1)):
        return [float(f"{re.sub(r'[^0-9]', '', _ascii(head)) or '0'}.{_ascii(tail)}")]
    return [] if kinds == {"."} else [one for part in re.split(r"[,'\u2019\u00a0]", run) for one in _read_digits(part)]


def _is_grouped(run: str, kinds: set[str], least: int = 2) -> bool:
    """Return True if one kind of separator makes groups of thousands. least: dots that do; a single one is a decimal
    one."""
    if len(kinds) != 1:
        return False
    first, *rest = re.split(r"\D", run)
    if (kinds == {"."} and len(rest) < least) or not 1 <= len(first) <= 3 or first.startswith("0"):
        return False
    india = kinds == {","} and len(first) <= 2 and all(len(part) == 2 for part in rest[:-1])
    return len(rest[-1]) == 3 and (india or all(len(part) == 3 for part in rest))


def _whole(digits: str) -> float:
    return int(digits) if len(digits) <= 300 else float(digits)


def _ascii(digits: str) -> str:
    return "".join(str(int(char)) if char.isdigit() else char for char in digits)


def read_number(text: str, field: str = "answer") -> tuple[Number, bool] | None:
    """(the number that a text gives, whether among other words); None if there is none.

    What is boxed or introduced as the answer comes first, then a number that begins a short answer, then the last one.
    field: the name of the output.
    """
    if not _DIGIT.search(text):
        return None
    text = _ABOUT.sub(" = ", _TOLERANCE.sub("", normalise(ends_of(text))))
    text = _SPACED.sub(lambda groups: groups[0].replace(" ", "\u00a0"), text)
    bare = text.strip().strip("\"'`*").strip().rstrip(".").rstrip()
    bare = _NUMBERED.sub("", bare) if "\n" not in bare else bare
    if _is_joined(bare):
        return None
    numbers = _stated_numbers(bare)
    if len(numbers) == 1 and (numbers[0].start, numbers[0].end) == (0, len(bare)):
        return numbers[0], False
    if not numbers or not _is_one(bare, numbers):
        return None
    first, rest = numbers[0], bare[numbers[0].end :]
    listed = len(numbers) > 1 and not bare[first.end : numbers[1].start].strip(" ,;")
    begins = not listed and not bare[: first.start].strip("\"'`*(~ ")
    corrected = CORRECTS.search(rest)
    if begins and _ALONE.match(rest) and not corrected and not _is_open(bare, first):
        return first, True
    for conclusion in find_conclusions(bare, field):
        if _stated_numbers(conclusion):
            return (found, True) if (found := _concluded(conclusion)) else None
    reasoned = corrected or _REASONS.search(_BRACKETED.sub(" ", rest))
    if begins and len(numbers) <= 3 and _BEGINS.match(rest) and not reasoned and not _is_open(bare, first):
        return first, True
    before, equals, behind = rest.rpartition("=")
    if begins and equals and not before.strip() and not _single(behind):
        return first, True
    outside = _ASIDE.sub(r"\1", _BRACKETED.sub(" ", bare.replace("(=", "=")))
    outside, numbers = (outside, found) if (found := _stated_numbers(outside)) else (bare, numbers)
    return None if _is_open(outside, numbers[-1]) else (numbers[-1], True)


def _concluded(text: str) -> Number | None:
    """The number in what is introduced as the answer: behind the last `=`, unless that is a calculation, and not in
    brackets, if it has several."""
    before, _, behind = _BRACKETED.sub(" ", text).rpartition("=")
    if _is_joined(text.strip().rstrip(".")):
        return None
    if re.search(r"\d\s*(?:or|oder|ou|o|или|或)\s*\w\s*\Z", before):
        return None
    return next((found for part in (behind, before, text) if (found := _single(part))), None)


def _is_joined(text: str) -> bool:
    """Return True for a time, a date, a ratio, or a solution of several values."""
    return bool(_JOINED.fullmatch(text)) and not ("=" in text and len({one.value for one in find_numbers(text)}) == 1)


def _single(text: str) -> Number | None:
    """The first number in a text, unless it is one of several of which none is the value."""
    numbers = _stated_numbers(text)
    return numbers[0] if numbers and _is_one(text, numbers) and not _is_open(text, numbers[0]) else None


def _is_one(text: str, numbers: list[Number]) -> bool:
    """Return True unless a text is nothing but several numbers: a list, a range or a calculation without a result."""
    if "=" in text or "####" in text or len({one.value for one in numbers}) == 1:
        return True
    bare = _BRACKETED.sub(" ", text)
    text, numbers = (bare, found) if (found := _stated_numbers(bare)) else (text, numbers)
    between = [text[one.end : two.start] for one, two in pairwise(numbers)]
    marks = (text[: numbers[0].start], text[numbers[-1].end :], *between)
    return len(numbers) < 2 or any(re.search(r"\w|\\", part) for part in marks)


def _is_open(text: str, number: Number) -> bool:
    """Return True if a number is one of two in a text of which none is the value, or a part of one."""
    before, behind = text[max(0, number.start - 40) : number.start], text[number.end : number.end + 40]
    if _ROOT_OF.search(before) or _TIMES_ROOT.match(behind) or _BETWEEN.search(before):
        return True
    if re.match(rf"{_JOINS.pattern}(?=\d)", behind):
        return True
    return any(_JOINS.fullmatch(before, digit.end()) for digit in re.finditer(r"\d", before))


def _stated_numbers(text: str) -> list[Number]:
    """The numbers in a normalised text that are not denied: `not 12 but 14` states 14."""
    return [one for one in find_numbers(text) if not _DENIED.search(text[max(0, one.start - 20) : one.start])]

"""Texts that patterns can match, read from the syntax tree of Python's own parser, the private `re._parser`.

Nothing is searched. The functions are conservative: they reject a pattern only if it certainly cannot match.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

#: Maximum number of texts that `listed_matches` returns.
_MAX_LISTED = 100

_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")
_REPEATS = (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT)
_STARTS = (_codes.AT_BEGINNING, _codes.AT_BEGINNING_STRING)
_ENDS = (_codes.AT_END, _codes.AT_END_STRING)
#: Sample for tests of character sets: letters, digits, spaces, marks, and one character of another script.
_SAMPLE = [chr(code) for code in range(256)] + ["\u0416", "\u4e2d"]


class Unmatchable(ValueError):
    """No text matches the pattern. The message gives the reason."""


def shortest_match(pattern: str) -> int:
    """Return the length of the shortest text that a pattern may match. Raise Unmatchable if none can, and re.error."""
    tree = _parser.parse(pattern)
    multiline = bool(tree.state.flags & re.MULTILINE)
    return _width(list(tree), multiline, 0)


def listed_matches(pattern: str) -> list[str] | None:
    """Return all texts that a pattern like `^(a|b)$` can match: it covers the whole text and has few alternatives.

    Returns None for any other pattern. Raises re.error.
    """
    tree = _parser.parse(pattern)
    parts = list(tree)
    if (
        tree.state.flags & re.MULTILINE
        or len(parts) < 2
        or parts[0][0] is not _codes.AT
        or parts[-1][0] is not _codes.AT
    ):
        return None
    return _listed(parts[1:-1]) if parts[0][1] in _STARTS and parts[-1][1] in _ENDS else None


def _listed(parts: Sequence[Any]) -> list[str] | None:
    """Return the texts of a sequence of characters, alternatives and groups."""
    texts = [""]
    for kind, content in parts:
        here: list[str] | None = None
        if kind is _codes.LITERAL:
            here = [chr(content)]
        elif kind is _codes.BRANCH:
            branches = [_listed(list(branch)) for branch in content[1]]
            here = None if None in branches else [text for branch in branches for text in branch or ()]
        elif kind is _codes.IN and all(one is _codes.LITERAL for one, _ in content):
            here = [chr(code) for _, code in content]
        elif kind is _codes.SUBPATTERN and not content[1] and not content[2]:
            here = _listed(list(content[-1]))
        if here is None or len(texts) * len(here) > _MAX_LISTED:
            return None
        texts = [before + text for before in texts for text in here]
    return texts


def _width(parts: Sequence[Any], multiline: bool, before: int) -> int:
    """Return the minimum number of characters of a sequence. before: the minimum number in front of it."""
    total, ended = 0, False
    for kind, content in parts:
        if kind is _codes.AT:
            if content in _STARTS and before + total and not (multiline and content is _codes.AT_BEGINNING):
                raise Unmatchable("text stands before ^, the beginning")
            ended = ended or (content in _ENDS and not (multiline and content is _codes.AT_END))
            continue
        width = _width_of(kind, content, multiline, before + total)
        if ended and (width > 1 or (width and not _takes_newline(kind, content))):
            raise Unmatchable("text stands behind $, the end")
        total += width
    return total


def _width_of(kind: Any, content: Any, multiline: bool, before: int) -> int:
    if kind in (_codes.LITERAL, _codes.NOT_LITERAL, _codes.ANY):
        return 1
    if kind is _codes.IN:
        if not any(_in_set(char, content) for char in _SAMPLE) and not _has_others(content):
            raise Unmatchable("a set of characters has none in it")
        return 1
    if kind is _codes.BRANCH:
        return _least(content[1], multiline, before)
    if kind in _REPEATS:
        least, _, inner = content
        return least * _width(list(inner), multiline, before) if least else 0
    if kind is _codes.SUBPATTERN:
        _, added, removed, inner = content
        return _width(list(inner), (multiline or bool(added & re.MULTILINE)) and not removed & re.MULTILINE, before)
    if kind is _codes.ATOMIC_GROUP:
        return _width(list(content), multiline, before)
    if kind is _codes.ASSERT:
        if content[0] > 0:
            _width(list(content[1]), multiline, before)
        return 0
    refuses = kind is _codes.ASSERT_NOT and all(part[0] in _REPEATS and not part[1][0] for part in content[1])
    if refuses or kind is _codes.FAILURE:  # which Python 3.13 makes of an empty (?!)
        raise Unmatchable("(?!...) refuses what always matches")
    return 0  # references and conditions: their width is not known here


def _least(branches: Iterable[Any], multiline: bool, before: int) -> int:
    """Return the minimum width of the alternatives that can match. Raise Unmatchable if none can."""
    widths: list[int] = []
    reason: Unmatchable | None = None
    for branch in branches:
        try:
            widths.append(_width(list(branch), multiline, before))
        except Unmatchable as error:
            reason = error
    if not widths and reason is not None:
        raise reason
    return min(widths, default=0)


def _takes_newline(kind: Any, content: Any) -> bool:
    """Return True if one part may be a newline, or if that is unclear."""
    if kind in (_codes.LITERAL, _codes.NOT_LITERAL):
        return (content == ord("\n")) is (kind is _codes.LITERAL)
    return kind is not _codes.IN or _in_set("\n", content)


def _has_others(content: Sequence[Any]) -> bool:
    """Return True if a set names characters outside the sample."""
    return any(
        (kind is _codes.LITERAL and value > 255) or (kind is _codes.RANGE and value[1] > 255) for kind, value in content
    )


def _in_set(char: str, content: Sequence[Any]) -> bool:
    """Return True if a set of characters, [...], contains a character."""
    negated = bool(content) and content[0][0] is _codes.NEGATE
    return negated is not any(_is_one(ord(char), kind, value) for kind, value in content[negated:])


def _is_one(code: int, kind: Any, value: Any) -> bool:
    if kind is _codes.RANGE:
        return value[0] <= code <= value[1]
    if kind is _codes.CATEGORY:
        letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(value).rpartition("_")[2]]
        return re.match(rf"\{letter.upper() if '_NOT_' in str(value) else letter}", chr(code)) is not None
    return value == code

"""Guess the type of an answer from the right answers of some rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: Answers are labels if they are at most this many and this short.
_LABELS, _LETTERS = 20, 40


@dataclass(frozen=True)
class AnswerType:
    """A type of answers. type: as in a signature, "" for text. shown_by: the evidence, as part of a sentence."""

    kind: Literal["choice", "number", "structure", "text"]
    type: str
    shown_by: str


def guess_type(answers: Sequence[Any]) -> AnswerType:
    """Guess the type of answers: one of a few labels, a number, lists and objects, or text."""
    if any(isinstance(one, list | dict) for one in answers):
        return AnswerType("structure", "Any", "they are lists or objects")
    kinds = sorted(set(answers), key=str)
    told = f"there are {len(kinds)} different ones in {len(answers)} rows"
    if answers and all(isinstance(one, bool) for one in answers):
        return AnswerType("choice", "bool", "they are true or false")
    short = all(len(str(one)) <= _LETTERS for one in kinds)
    if len(kinds) <= _LABELS and 2 * len(kinds) <= len(answers) and short and not _has_fraction(kinds):
        return AnswerType("choice", f"Literal[{', '.join(map(repr, kinds))}]", told)
    if answers and all(_is_number(one) for one in answers):
        return AnswerType("number", "float" if _has_fraction(answers) else "int", "all of them are numbers")
    return AnswerType("text", "", told)


def _is_number(value: Any) -> bool:
    try:
        return abs(float(value)) < float("inf") and not isinstance(value, bool)
    except (TypeError, ValueError):
        return False


def _has_fraction(values: Sequence[Any]) -> bool:
    return all(_is_number(one) for one in values) and any(float(one) % 1 for one in values)

"""The words of an entry that are searched, and scores on one scale."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench_kit.prompting import plain_adapter as plain


def split_words(text: str) -> list[str]:
    """The distinct words of a text in lower case, in order."""
    return list(dict.fromkeys(re.findall(r"\w+", text.lower())))


def join_fields(values: Mapping[str, Any], names: Sequence[str]) -> str:
    """The searchable text: the values of the input fields."""
    return " ".join(plain.as_text(values[n]) for n in names if n in values)


def scale_scores(scores: dict[int, float]) -> dict[int, float]:
    """Scores as shares of the best one, in [0, 1]."""
    best = max(scores.values(), default=0.0)
    return {index: max(0.0, score) / best if best > 0 else 0.0 for index, score in scores.items()}

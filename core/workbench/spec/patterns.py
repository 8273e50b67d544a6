"""Regular expressions from files and rows, with a time limit for each search.

The searched texts come from a model or a row. A malicious pattern could make `re` search forever and block the event
loop.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

#: Time limit of one search in seconds. An ordinary one takes some microseconds.
SECONDS = 0.5


class TooSlow(ValueError):
    """A search was stopped. The message names the pattern."""


class Pattern:
    """A regular expression of Python's `re` whose searches raise TooSlow after SECONDS. Raises ValueError with the
    reason if the text is not a regular expression."""

    def __init__(self, pattern: str, flags: int = 0):
        try:
            self.groups = re.compile(pattern, flags).groups
            self._found = importlib.import_module("regex").compile(pattern, flags)  # a search of `re` cannot be stopped
        except re.error as error:
            raise ValueError(f"{pattern!r:.200} is not a regular expression: {error}") from None
        except (RecursionError, OverflowError, ValueError) as error:
            raise ValueError(f"{pattern!r:.200} is nested too deeply, or counts too far: {error}") from None
        self.pattern = pattern

    def search(self, text: str) -> re.Match[str] | None:
        return self._within(self._found.search, text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._within(self._found.fullmatch, text)

    def finditer(self, text: str) -> list[re.Match[str]]:
        return self._within(lambda *args, **limit: [*self._found.finditer(*args, **limit)], text)

    def _within(self, method: Callable[..., Any], text: str) -> Any:
        try:
            return method(text, timeout=SECONDS)
        except TimeoutError:
            raise TooSlow(
                f"{self.pattern!r:.200} took more than {SECONDS} s on a text of {len(text)} characters; write it "
                "without a repetition inside another"
            ) from None


def check_pattern(pattern: str | None) -> str | None:
    """Validate a setting that holds a pattern, for pydantic."""
    Pattern(pattern or "")
    return pattern

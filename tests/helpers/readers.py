"""Readers called as tests want them: all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any


def listed(reader: Callable[[str, Mapping[str, Any]], Any]) -> Callable[[str, Mapping[str, Any]], list[dict[str, Any]]]:
    """A reader that returns a list of its rows."""

    @wraps(reader)
    def read(location: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [*reader(location, options)]

    return read

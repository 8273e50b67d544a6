"""Which checks of a suite a plugin breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def broken(checks: Sequence[Callable[[Any], None]], case: Any) -> dict[str, str]:
    """The names of the checks that the case does not pass, each with what it says. Raises what is no AssertionError."""
    found = {}
    for check in checks:
        try:
            check(case)
        except AssertionError as error:
            found[check.__name__] = str(error)
    return found

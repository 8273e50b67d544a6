"""The reader of `*.notes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench import SpecError


def read_notes(location: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each line, as {"text": line}. It has no options. Raises SpecError for an empty file."""
    for name in options:
        raise SpecError(f"this reader has no option '{name}'", file=location, hint="Remove data: {options: ...}.")
    lines = [line for line in Path(location).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise SpecError("there are no notes", file=location, line=1, column=1, hint="Write one on each line.")
    yield from ({"text": line} for line in lines)

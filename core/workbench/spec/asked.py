"""The content that the user approved in this command: what is read later must be the same.

A file may be replaced between the question and its use. The workflow file itself is read once and passed on. The files
that it refers to are read again, and refused if they have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.base.files import content_digest
from workbench.errors import SpecError

_asked: dict[str, str] = {}


def note_asked(digests: Mapping[str, str]) -> None:
    """Store the approved content: SHA-256 by path, or by another name."""
    _asked.update(digests)


def forget_asked() -> None:
    """Forget the approved content: the command is over."""
    _asked.clear()


def check_asked(place: str | Path, content: bytes) -> None:
    """Raise SpecError if this is not the approved content. place: the path of a file, or a name."""
    if not _asked:
        return
    name = str(place.resolve()) if isinstance(place, Path) else place
    if _asked.get(name, found := content_digest(content)) != found:
        raise SpecError(
            f"{place} has changed since this command asked whether it is trusted",
            hint="Nothing of the new one was run. Give the command again.",
        )

"""Paths that a file names, which may be invalid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def existing(place: str, base: Path) -> Iterator[Path]:
    """Yield the existing paths for a text, links followed, with `~` as a name and as the home folder."""
    for written in dict.fromkeys((place, str(Path(place).expanduser()) if place.startswith("~") else place)):
        try:
            path = (base / written).resolve()
            if path.exists():
                yield path
        except (OSError, RuntimeError, ValueError):
            pass  # not a path


def is_there(path: Path) -> bool:
    """Return True if the path is a file."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def lies_inside(path: Path, base: Path) -> bool:
    """Return True if a path is inside a folder, links followed."""
    try:
        return path.expanduser().resolve().is_relative_to(base.resolve())
    except (OSError, RuntimeError, ValueError):
        return False

"""Rows of a file, by the reader of its suffix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import SpecError, suggest
from workbench.plugins import plugins
from workbench.spec import Power, Written, powers_of

Row = dict[str, Any]


class Rows(list[Row]):
    """Rows of a file with values that a row cannot hold, such as NaN: null, and refused where it is read.

    holes: by the name of a field, dotted if nested: the index of the first such row, and the error that says where.
    """

    def __init__(self, rows: Iterable[Row] = ()):
        super().__init__(rows)
        self.holes: dict[str, tuple[int, SpecError]] = {}

    def add_hole(self, field: str, error: SpecError) -> None:
        """Note a value of the next row that is to be appended."""
        self.holes.setdefault(field, (len(self), error))


def reader_of(location: str) -> str:
    """The name of the reader that reads a place: its prefix, as in READER:PLACE, or its suffix, in any case and before
    `.gz`."""
    known = plugins().names("readers")
    prefix, colon, _ = location.partition(":")
    if colon and prefix in known:
        return prefix
    path = Path(location)
    suffix = path.suffix.removeprefix(".")
    if suffix.lower() == "gz" and suffix not in known:
        suffix = Path(path.stem).suffix.removeprefix(".")
    return suffix if suffix in known else suffix.lower()


def folder_of(place: str, base: Path) -> Path:
    """The folder that a path after a reader's name is relative to: that of the workflow file, if it lies there, or else
    the current one. What follows `?` is no part of it."""
    return base if any((base / path).exists() for path in (place, place.partition("?")[0]) if path) else Path.cwd()


def _reads_path(name: str, place: str, options: Mapping[str, Any], folder: Path) -> bool:
    """Return True if the reader declares that it reads the place as a path."""
    found = powers_of("readers", name, Written({**options, "location": place}, (), folder))
    return any(isinstance(power, Power) and power.kind == "reads a path" for power in found)


def read_rows(location: str, base: Path, options: Mapping[str, Any]) -> list[Row]:
    """The rows of a file, by the reader of its suffix, or of READER:PLACE; a reader may return `Rows`.

    base: the folder of relative paths. Raises SpecError.
    """
    known, name = plugins().names("readers"), reader_of(location)
    prefix, colon, place = location.partition(":")
    if colon and prefix == name:
        folder = folder_of(place, base)
        if folder is base and _reads_path(name, place, options, base):
            place = str(base.resolve() / place)
        return plugins().get("readers", name)(place, options)
    path = (base / location).resolve()
    if name not in known:
        hint = suggest(name, known)
        if plugins().set_aside:
            hint += (
                f" Plugins that failed to load: {', '.join(sorted(plugins().set_aside))} (see `workbench plugin list`)."
            )
        raise SpecError(f"no reader for '{location}' (by its suffix '{Path(location).suffix}')", hint=hint)
    if not path.is_file():
        near = [p.name for p in path.parent.glob("*") if p.is_file()] if path.parent.is_dir() else []
        hint = suggest(path.name, near) if near else "Paths are relative to the workflow file."
        raise SpecError(f"there is no file {path}", hint=hint)
    return plugins().get("readers", name)(str(path), options)

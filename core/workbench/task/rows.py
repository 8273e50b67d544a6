"""Rows of a file, read by the reader for its suffix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from workbench.base.distribution import how_to_get
from workbench.errors import SpecError, suggest
from workbench.plugins import plugins
from workbench.spec import Code, DataSpec, existing, read_outside
from workbench.task.drawn_rows import Row, RowDraw
from workbench.task.shards import find_shards, is_pattern, join_shards, leads_out, reader_of


def folder_of(place: str, base: Path) -> Path:
    """Return the folder for a relative path after a reader's name: the workflow file's if it exists there, else the
    current one. The part after `?` is not part of the path."""
    return base if any((base / path).exists() for path in (place, place.partition("?")[0]) if path) else Path.cwd()


def data_path(location: str, base: Path) -> Path:
    """Return the path of a data file or folder, also for READER:PLACE, whether or not it exists."""
    prefix, colon, place = location.partition(":")
    if not colon or prefix != reader_of(location):
        return base / location
    return folder_of(place, base) / place.partition("?")[0]


def data_folder(location: str, base: Path) -> Path:
    """Return the folder for relative paths inside rows: that of their file."""
    path = data_path(location, base)
    return path if path.is_dir() else path.parent


def data_files(data: DataSpec, base: Path) -> frozenset[Path]:
    """Return the files and folders that hold the rows, including sealed ones and right answers."""
    found = set[Path]()
    for location in filter(None, (data.file, data.train, data.val, data.test)):
        found.add(path := data_path(location, base))
        if path.is_dir() or is_pattern(str(path)):
            with suppress(SpecError):  # a folder of another kind is a single item
                found.update(find_shards(base, str(path)))
    return frozenset(path.resolve() for path in found)


def enter_rows(location: str, base: Path) -> None:
    """Pass the doors of a place of rows. A reader with `enter` runs something, and passes its doors there."""
    prefix, colon, rest = location.partition(":")
    named = colon and prefix.isidentifier()
    path = rest.partition("?")[0] if named else location
    folder = folder_of(rest, base) if named else base
    unknown = bool(named) and not any(existing(path, folder))  # such as a data set on a hub
    read_outside(path, folder, shown=location, outside=unknown or leads_out(path, folder))
    if named and prefix in plugins().names("readers"):
        if enter := getattr(plugins().get("readers", prefix), "enter", None):
            enter(rest)


def read_rows(
    location: str, base: Path, options: Mapping[str, Any], draw: RowDraw | None = None, code: Code = "loaded"
) -> list[Row]:
    """Read the rows of a file or folder with the reader for its suffix, or those of READER:PLACE.

    base: the folder for relative paths. draw: the rows to read; None: all of them. code: only with `loaded`, a reader
    may run a package that contains the rows. Raises SpecError.
    """
    known, name = plugins().names("readers"), reader_of(location)
    prefix, colon, place = location.partition(":")
    draw = draw or RowDraw()
    enter_rows(location, base)
    if colon and prefix == name:
        read = plugins().get("readers", name)
        reads_path = getattr(read, "reads_file", True)
        if reads_path and folder_of(place, base) is base:
            place = str(base.resolve() / place)
        if code != "loaded" and (runs_code := getattr(read, "runs_code", None)) and runs_code(place, options):
            why = f"listing the rows of {location} runs the package that has them"
            raise SpecError(why, hint="Add --run-code, or run the workflow.")
        if is_pattern(place) and reads_path and not Path(place).exists():
            return _read_all(read, find_shards(base, place), base, location, options, draw)
        size = Path(place).stat().st_size if Path(place).is_file() else None
        return draw.rows(join_shards([read(place, options)], [_shown(place.partition("?")[0], base)]), location, size)
    path = (base / location).resolve()
    if path.is_dir() or (is_pattern(location) and not path.exists()):
        files = find_shards(base, location)
        read = plugins().get("readers", reader_of(files[0].name))
        return _read_all(read, files, base, location, options, draw)
    if name not in known:
        hint = how_to_get("readers", name) or suggest(name, known)
        if plugins().set_aside:
            hint += (
                f" Plugins that failed to load: {', '.join(sorted(plugins().set_aside))} (see `workbench plugin list`)."
            )
        raise SpecError(f"no reader for '{location}' (by its suffix '{Path(location).suffix}')", hint=hint)
    if not path.is_file():
        near = [p.name for p in path.parent.glob("*") if p.is_file() and reader_of(p.name) in known]
        hint = suggest(path.name, near) if near else "Paths are relative to the workflow file."
        raise SpecError(f"there is no file {path}", hint=hint)
    return _read_all(plugins().get("readers", name), [base / location], base, str(path), options, draw)


def _read_all(
    read: Callable[[str, Mapping[str, Any]], Iterable[Row]],
    files: Sequence[Path],
    base: Path,
    location: str,
    options: Mapping[str, Any],
    draw: RowDraw,
) -> list[Row]:
    parts = [read(str(file.resolve()), options) for file in files]
    names = [_shown(file, base) for file in files]
    return draw.rows(join_shards(parts, names), location, sum(file.stat().st_size for file in files))


def _shown(file: str | Path, base: Path) -> str:
    """Return the name of a data file in the places of its rows: relative to the workflow file, or the name alone."""
    path = Path(file)
    if path.is_relative_to(base):
        return str(path.relative_to(base))
    return path.name if path.is_absolute() else str(path)

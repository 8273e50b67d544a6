"""Shards: the files of a folder, or of a pattern such as `rows/*.parquet`, that form one data set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from workbench.errors import SpecError
from workbench.plugins import plugins
from workbench.spec import lies_inside
from workbench.task.drawn_rows import Row, Table, place_rows

#: Files that libraries write next to shards, and that hold no rows.
_BESIDE = frozenset("dataset_info.json dataset_infos.json dataset_dict.json state.json metadata.json".split())


def reader_of(location: str) -> str:
    """Return the reader's name for a place: its prefix, as in READER:PLACE, or its suffix, in any case, before
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


def is_pattern(location: str) -> bool:
    """Return True if a place names files by a pattern."""
    return any(mark in location for mark in "*[")


def find_shards(base: Path, location: str, beginning: str = "") -> list[Path]:
    """List the files of a folder and its subfolders, or of a pattern, in the order of the numbers in their names.

    beginning: a prefix of file or folder names, such as a split of a hub. If no name has it, all files are listed.
    Raises SpecError if there are no files, or files of several kinds.
    """
    files = _files(base, location)
    wanted = [path for path in files if beginning and _begins(path, beginning)]
    files = sorted(wanted or files, key=_natural)
    if not files:
        hint = "Name a file, a folder of files of one kind, or a pattern such as shards/*.parquet."
        raise SpecError(f"{location} contains no files that a reader knows", hint=hint)
    kinds = Counter(reader_of(path.name) for path in files)
    if len(kinds) > 1:
        told = ", ".join(f"{count} of .{kind}" for kind, count in sorted(kinds.items()))
        hint = (
            f"Name those of one kind by a pattern, e.g. {location.rstrip('/')}/*.{max(kinds, key=lambda k: kinds[k])}."
        )
        raise SpecError(f"{location} contains files of several kinds: {told}", hint=hint)
    return files


def leads_out(location: str, base: Path) -> bool:
    """Return True if a shard is a link to a file outside the location."""
    try:
        return not all(lies_inside(path, base) for path in _files(base, location))
    except (OSError, ValueError, RuntimeError):
        return False  # not read, either


def _files(base: Path, location: str) -> list[Path]:
    """List the files of a folder and its subfolders, or of a pattern; empty for a file."""
    folder = base / location
    if folder.is_dir():
        return [path for path in folder.rglob("*") if path.is_file() and _holds_rows(path, folder)]
    if not is_pattern(location) or folder.exists():
        return []
    fixed, names = Path(), list[str]()
    for part in Path(location).parts:
        if names or is_pattern(part):
            names.append(part)
        else:
            fixed /= part
    found = (base / fixed).glob("/".join(names))
    return [path for path in found if path.is_file() and _holds_rows(path, base / fixed)]


def _holds_rows(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    return not hidden and path.name not in _BESIDE and reader_of(path.name) in plugins().names("readers")


def _begins(path: Path, beginning: str) -> bool:
    return any(re.match(rf"{re.escape(beginning)}(?![a-z])", part, re.IGNORECASE) for part in path.parts[-2:])


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return the sort key of a file: part-2 comes before part-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def join_shards(parts: Sequence[Iterable[Row]], names: Sequence[str]) -> Iterable[Row]:
    """Return the rows of several files, one after the other, as a table if each file is one. names: of the files."""
    if all(isinstance(part, Table) for part in parts):
        return _Tables([part for part in parts if isinstance(part, Table)], names)
    return chain.from_iterable(map(place_rows, parts, names))


class _Tables:
    def __init__(self, tables: Sequence[Table], names: Sequence[str]):
        self._tables, self._names = tables, names

    def __len__(self) -> int:
        return sum(map(len, self._tables))

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(map(place_rows, self._tables, self._names))

    def take(self, places: Sequence[int]) -> Iterator[Row]:
        """Yield the rows at these positions, which ascend."""
        before = 0
        for table, name in zip(self._tables, self._names, strict=True):
            inside = [place - before for place in places if before <= place < before + len(table)]
            yield from place_rows(table.take(inside), name, (place + 1 for place in inside)) if inside else ()
            before += len(table)

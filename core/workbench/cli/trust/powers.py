"""The capabilities of a workflow file besides calling its models, about which the user is asked (`workbench trust`).

They come from the declarations of the things in the file (`workbench.task.find_powers`), with the digests of the files
behind them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.files import NEVER_COPIED, content_digest, file_digest
from workbench.base.text import one_line
from workbench.spec import Power, Source, load_yaml_file
from workbench.store import is_run_database
from workbench.task import find_powers

#: The most texts to show of each kind, and the most characters of each text.
_LISTED, _SHOWN = 12, 160
_OUTSIDE = "reads outside its folder"
_DATABASES = (".db", ".sqlite", ".sqlite3")
#: Limits on the files behind a capability: their number, and the bytes to digest. The rest count by size and time.
_MOST_FILES, _MOST_BYTES = 20_000, 500_000_000


@dataclass
class Powers:
    """The capabilities of a file, and the digests of the files that declare them.

    `found` maps each kind to its texts as written, with their meaning independent of the file's location. The digest
    covers the folder, the workflow file, files that it refers to, and files that its powers depend on (not imports).
    """

    folder: Path
    found: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    digests: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def contents(self) -> dict[str, str]:
        """Return the digests by path of file, without the workflow file itself, which is read once."""
        return {str((self.folder / place).resolve()): mark for place, mark in self.digests.items() if place != "."}

    def add(self, kind: str, text: str, what: str | None = None) -> None:
        self.found.setdefault(kind, {})[text] = text if what is None else what

    def __bool__(self) -> bool:
        return bool(self.found)

    @property
    def digest(self) -> str:
        content = repr((str(self.folder), sorted(self.digests.items())))  # elsewhere, `./server.sh` is another program
        return content_digest(content.encode("utf-8", "surrogatepass"))

    def covers(self, other: Powers) -> bool:
        """Return True if the other file has no capability that this one does not have, or that needs no question."""
        return all(
            what in self.found.get(kind, {}).values()
            or (kind == _OUTSIDE and Path(what.partition(":")[2] or what).is_relative_to(self.folder))
            for kind, texts in other.found.items()
            for what in texts.values()
        )

    def lines(self) -> list[str]:
        """Return a line for each kind, safe to show."""
        return [f"{kind}: {_listed(self.found[kind])}" for kind in sorted(self.found)]


def _listed(texts: Iterable[str]) -> str:
    """Join texts by commas, cut so that they cannot push other lines off the screen."""
    shown = [one_line(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...") for text in sorted(texts)]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return ", ".join(shown[:_LISTED]) + more


def file_powers(source: Source | Path, called: bool = False) -> Powers:
    """Find a workflow file's capabilities. called: it is called, not improved. Raises SpecError if unreadable."""
    source = source if isinstance(source, Source) else load_yaml_file(source)
    return read_powers(source.value, source.text, Path(source.file).resolve().parent, called)


def read_powers(value: Any, text: str, base: Path, called: bool = False) -> Powers:
    """Find the capabilities of a workflow file that was already read, such as that of a stored run.

    Args:
        value: the file's content.
        text: the text to digest for it.
        base: the folder that its paths are relative to.
        called: the file is called, not improved.
    """
    base = base.resolve()
    found, powers = find_powers(value, base, called=called), Powers(base)
    for path, other in {base: text, **found.texts}.items():
        powers.digests[os.path.relpath(path, base)] = content_digest(other.encode("utf-8", "surrogatepass"))
    for power in found.powers:
        if power.kind != "reads a path":
            powers.add(power.kind, power.text, power.what)
            powers.digests |= _leaned_on(power, base)
        elif power.outside:
            powers.add(_OUTSIDE, power.text, power.what)
    return powers


def _leaned_on(power: Power, base: Path) -> dict[str, str]:
    found, left = dict[str, str](), _MOST_BYTES
    for path in (path for top in power.files for path in _within(top, base)):
        if len(found) >= _MOST_FILES:
            return {**found, "more": "files than are checked"}
        try:
            status = path.stat()
            left -= status.st_size
            mark = file_digest(path) if left >= 0 and path.is_file() else f"{status.st_size} {status.st_mtime_ns}"
        except OSError:
            mark = "cannot be read"
        found[os.path.relpath(path, base)] = mark
    return found


def _within(top: Path, base: Path) -> Iterator[Path]:
    """Yield a file, or the files of a folder that would be copied, links followed."""
    if not top.is_dir():
        yield top
        return
    waiting, seen = [top], set[Path]()
    while waiting:
        folder = waiting.pop()
        if (real := folder.resolve()) in seen:
            continue
        seen.add(real)
        for path in _entries(folder):
            if path.name in NEVER_COPIED or _is_written_by_runs(path, base):
                continue
            elif path.is_dir():
                waiting.append(path)
            elif path.is_file() or path.is_symlink():
                yield path


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # then no run can read it, either


def _is_written_by_runs(path: Path, base: Path) -> bool:
    """Return True for run databases with their side files, and for results next to the workflow file: otherwise a run
    in the folder of its agent would change what the user approved."""
    if path.parent == base and path.suffix in (".yaml", ".yml"):
        with suppress(OSError, UnicodeDecodeError):
            return re.search(r"(?m)^nodes:", path.read_text(encoding="utf-8")) is not None
    names = (path.name.partition(suffix)[0] + suffix for suffix in _DATABASES if suffix in path.name)
    return any(is_run_database(path.with_name(name)) for name in names)

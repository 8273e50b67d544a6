"""Detect files that programs and tools leave next to themselves: later rows that run there can read them."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from workbench.base.files import NEVER_COPIED
from workbench.store import is_run_database

#: Number of rows followed by changed files from which on it is no accident, such as an edit by hand.
MIN_CHANGES = 3
#: Maximum number of files of a folder that are watched; the others are not seen.
_MAX = 2000
#: Maximum number of names kept for a row.
_KEPT = 3
#: Compiled code, and logs of shells and programs.
_IGNORED = (".pyc", ".log", "nohup.out")


class Beside:
    """The contents of some folders: which files changed since the last check."""

    def __init__(self, folders: Iterable[Path]):
        self._lock = threading.Lock()
        self._seen = {folder: _look(folder) for folder in folders}

    def find_changed(self) -> list[str]:
        """Return the names of files created, changed or removed since the last check, at most a few.

        Run databases, workflow files, logs and compiled code do not count: runs, shells and Python write them.
        """
        with self._lock:
            found: list[str] = []
            for folder, before in self._seen.items():
                now = self._seen[folder] = _look(folder)
                full = len(before) >= _MAX or len(now) >= _MAX  # the watched files may differ
                names = before.keys() & now.keys() if full else before.keys() | now.keys()
                differ = sorted(name for name in names if before.get(name) != now.get(name))
                found += [os.path.relpath(name, folder) for name in differ if not _is_of_workbench(Path(name))]
            return found[:_KEPT]


@dataclass
class Leftovers:
    """Files that a run's nodes left next to their programs and tools; shared by its rows (`Runtime.shared`)."""

    changes: dict[str, list[Sequence[str]]] = field(default_factory=dict[str, list[Sequence[str]]])
    _looks: dict[tuple[Path, ...], asyncio.Future[Beside]] = field(
        default_factory=dict[tuple[Path, ...], "asyncio.Future[Beside]"]
    )

    @classmethod
    async def open(cls) -> Leftovers:
        return cls()

    async def look(self, folders: Iterable[Path]) -> Beside:
        """Record the contents of folders before their first use."""
        asked = tuple(folders)
        if asked not in self._looks:
            self._looks[asked] = asyncio.ensure_future(asyncio.to_thread(Beside, asked))
        return await asyncio.shield(self._looks[asked])

    def count(self, node: str, names: Sequence[str]) -> None:
        """Count a row, or a tool call, that was followed by changes of these files, whether it was run or replayed."""
        if names:
            self.changes.setdefault(node, []).append(names)

    def _keeping(self) -> list[str]:
        return [node for node, changes in self.changes.items() if len(changes) >= MIN_CHANGES]

    def warnings(self) -> list[str]:
        return [
            f"'{node}': files beside its program or tools changed {len(self.changes[node])} times while it ran, e.g. "
            f"{self.changes[node][0][0]!r}. Later rows can read them there, so that they are not independent"
            for node in self._keeping()
        ]

    def kept_state(self) -> list[str]:
        return [f"'{node}' leaves files beside its program or tools from row to row" for node in self._keeping()]

    async def aclose(self) -> None: ...


def _look(folder: Path) -> dict[str, tuple[int, int]]:
    return dict(file for file, _ in zip(_files(folder), range(_MAX), strict=False))


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield (path, (size, modification time)) of the files in a folder and below."""
    printed = {(status.st_dev, status.st_ino) for status in (os.fstat(1), os.fstat(2))}  # our output may go there
    waiting = [str(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name in NEVER_COPIED or entry.name.endswith(_IGNORED):
                    continue
                with suppress(OSError):  # it was removed meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        if (status.st_dev, status.st_ino) in printed:
                            continue
                        yield entry.path, (status.st_size, status.st_mtime_ns)


def _is_of_workbench(path: Path) -> bool:
    """Return True if a file is a run database or one of its side files, or a workflow file, e.g. another run's
    result."""
    for end in [found.start() for found in re.finditer("-", path.name)] + [len(path.name)]:
        database = path.with_name(path.name[:end] or path.name)
        if database.is_file() and is_run_database(database):
            return True
    if path.suffix in (".yaml", ".yml"):
        with suppress(OSError, UnicodeDecodeError):
            return re.search(r"(?m)^nodes:", path.read_text(encoding="utf-8")) is not None
    return False

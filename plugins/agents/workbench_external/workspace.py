"""A fresh working directory for each row."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from workbench.base.files import NEVER_COPIED
from workbench.errors import SpecError
from workbench.store import is_run_database

_PREFIX = "workbench-rows-"
_DATABASES = (".db", ".sqlite", ".sqlite3")
_DEPENDENCIES = NEVER_COPIED - {".git", "__pycache__"}
#: Files that Node looks for above a program's folder (nodejs.org/api/esm.html, "Resolution algorithm specification").
_ABOVE = ("node_modules", "package.json", "tsconfig.json")


class Workspaces:
    """The working directories and homes of a run's rows, in one folder that is deleted with the run.

    data_files: as in `copy_folder`.
    """

    def __init__(self, data_files: frozenset[Path] = frozenset()) -> None:
        self._data_files = data_files
        _remove_abandoned()
        self.root = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))

    @asynccontextmanager
    async def fresh(self, folder: Path | None, *, links: bool = True) -> AsyncGenerator[Path]:
        """Yield a working directory in a new home (`home_variables`). Both are deleted at the end.

        folder: copied into it; None: it is empty. links: as in `copy_folder`; an image would not see their targets.
        """
        made = Path(tempfile.mkdtemp(dir=self.root))
        try:
            await asyncio.to_thread(_fill, made, folder, links, self._data_files)
            yield made / "work"
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def _fill(place: Path, folder: Path | None, links: bool, data_files: frozenset[Path]) -> None:
    made = place / "work"
    for one in (made, place / "tmp"):
        one.mkdir(mode=0o700)
    if folder is not None:
        copy_folder(folder, made, links=links, data_files=data_files)


def copy_folder(folder: Path, copy: Path, *, links: bool = True, data_files: frozenset[Path] = frozenset()) -> None:
    """Copy an agent's folder, without run databases. Link to the parts that it needs and never changes: its
    dependencies, and those that Node looks for above it.

    data_files: the rows with their right answers, left out, as an agent that reads its folder would find them.
    Raises SpecError if the folder cannot be copied.
    """
    needed: list[Path] = []

    def left_out(place: str, names: list[str]) -> set[str]:
        needed.extend(Path(place, name) for name in names if name in _DEPENDENCIES)
        runs = tuple(name for name in names if name.endswith(_DATABASES) and is_run_database(Path(place, name)))
        return {
            name
            for name in names
            if name in NEVER_COPIED
            or (data_files and Path(place, name).resolve() in data_files)
            or name.startswith(runs)
            or not _can_be_copied(os.lstat(Path(place, name)).st_mode)
        }

    try:
        shutil.copytree(folder, copy, symlinks=True, ignore=left_out, dirs_exist_ok=True)
    except OSError as error:  # the first of several errors is reported
        told = error.args[0][0][2] if isinstance(error, shutil.Error) else str(error)
        raise SpecError(f"{folder} cannot be copied: {told}", path=("folder",)) from None
    if links:
        for path in needed:
            (copy / path.relative_to(folder)).symlink_to(path.resolve())
        for name in _ABOVE:
            if found := next((above / name for above in folder.resolve().parents if (above / name).exists()), None):
                (copy.parent / name).symlink_to(found)


def _can_be_copied(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def write_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file in a folder. Raises SpecError for a name that leads out of it."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise SpecError(f"the file '{name}' leads out of the folder", hint="Write a path inside it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _remove_abandoned() -> None:
    """Remove the directories of killed runs on this machine."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        process = path.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists() and Path("/proc/self").exists():
            shutil.rmtree(path, ignore_errors=True)

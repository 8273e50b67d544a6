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


class Workspaces:
    """The working directories and homes of the rows of a run, in one place that goes with it."""

    def __init__(self) -> None:
        _remove_abandoned()
        self.root = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))

    @asynccontextmanager
    async def fresh(self, folder: Path | None) -> AsyncGenerator[Path]:
        """A working directory that goes at the end, in a home that goes with it (`home_variables`).

        folder: whose files it gets; None: it is empty.
        """
        made = Path(tempfile.mkdtemp(dir=self.root))
        try:
            await asyncio.to_thread(_fill, made, folder)
            yield made / "work"
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def _fill(place: Path, folder: Path | None) -> None:
    made = place / "work"
    for one in (made, place / "tmp"):
        one.mkdir(mode=0o700)
    if folder is not None:
        try:
            shutil.copytree(folder, made, symlinks=True, ignore=_left_out, dirs_exist_ok=True)
        except OSError as error:  # of several faults the first is told
            told = error.args[0][0][2] if isinstance(error, shutil.Error) else str(error)
            raise SpecError(f"{folder} cannot be copied: {told}", path=("folder",)) from None


def _left_out(place: str, names: list[str]) -> set[str]:
    """Select the entries of a folder that are not copied: databases of runs, perhaps of this one, and what is neither
    file nor folder."""
    runs = tuple(name for name in names if name.endswith(_DATABASES) and is_run_database(Path(place, name)))
    return {
        name
        for name in names
        if name in NEVER_COPIED or name.startswith(runs) or not _can_be_copied(os.lstat(Path(place, name)).st_mode)
    }


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
    """The directories of runs on this machine whose process was killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        process = path.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists() and Path("/proc/self").exists():
            shutil.rmtree(path, ignore_errors=True)

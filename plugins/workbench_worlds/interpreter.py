"""The interpreter of a world: ours, another one, or that of a venv made once from a list of requirements."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from workbench.errors import SpecError

#: Characters of what pip says of a failure.
_TOLD = 1000


def find_interpreter(written: str | None, base: Path) -> str:
    """The program that runs a world. Blocks, for minutes where requirements are installed.

    written: the setting `python`: None, a path or a name of a program, or a list of requirements (`*.txt`), from which
    a venv is made in the cache folder, once for the content of the list and our version of Python.

    Raises SpecError for a file that is not there, and for requirements that cannot be installed.
    """
    if written is None:
        return sys.executable
    if not written.endswith(".txt"):
        path = str(base / written) if os.sep in written else written
        if shutil.which(path) is None:
            raise SpecError(f"there is no program '{written}' to run worlds", path=("python",))
        return path
    try:
        content = (base / written).read_bytes()
    except OSError as error:
        hint = "Write a path from the folder of the workflow file."
        raise SpecError(f"cannot read the requirements {written}: {error.strerror}", hint=hint, path=("python",)) from None
    return str(_venv_of(base / written, content) / "bin" / "python")


def _venv_of(lock: Path, content: bytes) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workbench" / "worlds"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / hashlib.sha256(sys.version.encode() + content).hexdigest()[:16]
    with (cache / f"{place.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # two runs begin at once
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(place)], lock)
            _run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(lock)], lock)
            (place / "ready").touch()
    return place


def _run(command: list[str], lock: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SpecError(
            f"the requirements of {lock} cannot be installed: {done.stderr.strip()[-_TOLD:]}",
            hint="Correct the list: its versions must exist for this Python.",
            path=("python",),
        )

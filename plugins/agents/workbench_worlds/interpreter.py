"""The interpreter of a world: ours, another one, or that of a venv made once from a list of requirements."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from workbench.base.child_process import python_command
from workbench.base.text import alert
from workbench.errors import SpecError

#: The built-in worlds, and lists of their requirements.
WORLDS = Path(__file__).with_name("worlds")
#: Characters to report of pip's error.
_TOLD = 1000


def find_interpreter(written: str | None, base: Path) -> str:
    """Return the program that runs a world. Blocks for minutes if requirements are installed.

    written: the setting `python`: None, a path or a name of a program, or a list of requirements (`*.txt`). From a
    list, a venv is made in the cache folder, once per content of the list and version of Python. A list that is not in
    the workflow file's folder may be one of ours, e.g. textworld.txt.

    Raises SpecError for a missing file, and for requirements that cannot be installed.
    """
    if written is None:
        return sys.executable
    if not written.endswith(".txt"):
        path = str(base / written) if os.sep in written else written
        if shutil.which(path) is None:
            raise SpecError(f"there is no program '{written}' to run worlds", path=("python",))
        return path
    lock = find_requirements(written, base)
    place = venv_place(lock)
    _make_venv(lock, place)
    return str(place / "bin" / "python")


def find_requirements(written: str, base: Path) -> Path:
    """Return the list of requirements that a file names, its own or one of ours. Raises SpecError if there is none."""
    found = next((path for path in (base / written, WORLDS / written) if path.is_file()), None)
    if found is None:
        ours = ", ".join(sorted(path.name for path in WORLDS.glob("*.txt")))
        hint = f"Write a path from the folder of the workflow file, or one of ours: {ours}."
        raise SpecError(f"there is no list of requirements {base / written}", hint=hint, path=("python",))
    return found


def cache_folder() -> Path:
    """Return the folder of things that are made once: venvs, and lists of tasks."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workbench" / "worlds"


def venv_place(lock: Path) -> Path:
    """Return the folder of the venv for a list of requirements. The venv is complete if it has the file `ready`."""
    return cache_folder() / hashlib.sha256(sys.version.encode() + lock.read_bytes()).hexdigest()[:16]


def _make_venv(lock: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # two runs may begin at once
        if not (place / "ready").exists():
            alert(f"Installing {lock.name} into {place}: once, for minutes.")
            shutil.rmtree(place, ignore_errors=True)
            _run(python_command("-m", "venv", str(place)), lock)
            _run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(lock)], lock)
            (place / "ready").touch()


def _run(command: list[str], lock: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        why, hint = done.stderr.strip()[-_TOLD:], "Correct the list: its versions must exist for this Python."
        raise SpecError(f"the requirements of {lock} cannot be installed: {why}", hint=hint, path=("python",))

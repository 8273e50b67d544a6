"""Environments with wheels of this checkout, as a user has them.

Nothing is downloaded. An environment gets our wheels, and links to the packages that their metadata ask for: what they
do not ask for cannot be imported there.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from workbench.base.distribution import BUNDLED

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
BASE = ("workbench-core", "workbench-kit", "workbench-standard")


#: The folder of each distribution, of the meta distribution and of the example plugin.
FOLDERS = (*BUNDLED.values(), ".", "contrib/example_plugin")


def build_wheels(to: Path, *folders: str) -> dict[str, Path]:
    """Build the wheels of folders of the project; returns them by the names of their distributions."""
    command = [*PIP, "wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", str(to)]
    done = subprocess.run(
        [*command, *(str(ROOT / folder) for folder in folders)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return {path.name.partition("-")[0].replace("_", "-"): path for path in to.glob("*.whl")}


def needed(names: Iterable[str]) -> set[str]:
    """The distributions that some of ours ask for, ours left out, as they are installed here."""
    left, seen, found = [Requirement(name) for name in names], set[tuple[str, frozenset[str]]](), set[str]()
    while left:
        one = left.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        if not name.startswith("workbench-"):
            found.add(name)
        for line in importlib.metadata.requires(name) or ():
            more = Requirement(line)
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                left.append(more)
    return found


class Environment:
    """A virtual environment with some of our wheels, and an empty folder, where commands run."""

    def __init__(self, folder: Path, wheels: dict[str, Path], names: Iterable[str], strangers: Iterable[str] = ()):
        self.folder, self.home, self._wheels = folder, folder / "home", wheels
        self.home.mkdir()
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        asked = [str(self.python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        self._site = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        self.add(*names)
        self._unpack(strangers)

    def add(self, *names: str) -> None:
        for name in needed(names):
            for file in importlib.metadata.distribution(name).files or ():
                first = file.parts[0]
                target, source = self._site / first, Path(str(file.locate())).parents[len(file.parts) - 1] / first
                if first not in ("..", "__pycache__") and not target.exists():
                    target.symlink_to(source)
        self._unpack(names)

    def _unpack(self, names: Iterable[str]) -> None:
        if files := [str(self._wheels[Requirement(name).name]) for name in names]:
            command = [*PIP, "--python", str(self.python), "install", "-q", "--no-deps", "--no-index", "--no-compile"]
            done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stderr

    def run(self, *command: str, cwd: Path | None = None, given: str = "", code: int = 0, **env: str) -> str:
        """What a command prints, and, where it fails, its errors."""
        hidden = ("WORKBENCH_", "PYTHONPATH", "VIRTUAL_ENV", "COVERAGE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        env = kept | {"XDG_CONFIG_HOME": str(self.folder / "config"), "OMP_NUM_THREADS": "1"} | env
        done = subprocess.run(
            command, cwd=cwd or self.home, env=env, input=given, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    def workbench(self, *args: str, **more: Any) -> str:
        return self.run(str(self.python.with_name("workbench")), *args, **more)

    def json(self, *args: str) -> Any:
        return json.loads(self.workbench(*args, "--json").splitlines()[-1])

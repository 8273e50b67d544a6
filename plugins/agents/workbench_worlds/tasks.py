"""Readers of benchmarks: the tasks of the built-in worlds, from the packages that ship them.

A reader runs `list_tasks` of the world's file in the world's interpreter. Its result is cached next to the venvs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.base.files import file_digest, write_whole
from workbench.base.hashing import digest
from workbench.errors import SpecError
from workbench.spec import home_folder, pass_door, start_program
from workbench_worlds.interpreter import WORLDS, cache_folder, find_interpreter

#: argv: the world's file. stdin: the text after the reader's name, and its options.
_LIST = """
import json, runpy, sys
del sys.path[0]
place, options = json.load(sys.stdin)
list_tasks = runpy.run_path(sys.argv[1])["list_tasks"]
print("\\n" + json.dumps(list_tasks(*([place] if place else []), **options)))
"""


@dataclass(frozen=True)
class TaskReader:
    """The tasks of a world, e.g. `tau2:retail`: the text after the name is the first argument of its `list_tasks`, and
    options are the others."""

    world: str
    reads_file: bool = False

    def enter(self, location: str, now: bool = False) -> None:
        """Pass the doors of the reader: its package is installed, which runs code of the package."""
        pass_door("runs Python", what := f"the world {self.world}", what, home_folder(), now=now)
        if self._lock.is_file():
            start_program(f"pip install -r {self.world}.txt", home_folder(), now=now)

    def __call__(self, location: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """List the tasks, a row each. Blocks for minutes if the package must be installed first. Raises SpecError."""
        kept = self._kept(location, options)
        if not kept.is_file():
            self.enter(location, now=True)
            program = find_interpreter(self._lock.name, Path.cwd()) if self._lock.is_file() else sys.executable
            kept.parent.mkdir(parents=True, exist_ok=True)
            place = str(Path(location).resolve()) if self.reads_file else location
            command = [program, "-c", _LIST, str(self._file)]
            found = self._list(command, json.dumps([place, dict(options)]), kept.parent, location)
            write_whole(kept, json.dumps(found))
        return json.loads(kept.read_text(encoding="utf-8"))

    def runs_code(self, location: str, options: Mapping[str, Any]) -> bool:
        """Return True unless the tasks were listed before."""
        return not self._kept(location, options).is_file()

    @property
    def _file(self) -> Path:
        return WORLDS / f"{self.world}.py"

    @property
    def _lock(self) -> Path:
        return WORLDS / f"{self.world}.txt"

    def _kept(self, location: str, options: Mapping[str, Any]) -> Path:
        """Return the file that caches the tasks."""
        read = file_digest(Path(location)) if self.reads_file and Path(location).is_file() else ""
        versions = [file_digest(path) for path in (self._file, self._lock) if path.is_file()]
        return cache_folder() / "tasks" / f"{digest([location, dict(options), versions, read])}.json"

    def _list(self, command: list[str], told: str, folder: Path, location: str) -> list[dict[str, Any]]:
        done = subprocess.run(command, input=told, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason was told"])[-1][:1000]
            hint = f"See list_tasks in {self.world}.py of the plugin `worlds`: {self.world}: takes its arguments."
            raise SpecError(f"the tasks of {self.world}:{location} cannot be listed: {why}", hint=hint)
        return json.loads(done.stdout.splitlines()[-1])


agentdojo, bfcl, browsergym, pddlgym, scienceworld, tau2, textworld = map(
    TaskReader, ("agentdojo", "bfcl", "browsergym", "pddlgym", "scienceworld", "tau2", "textworld")
)
intercode = TaskReader("intercode_bash", reads_file=True)

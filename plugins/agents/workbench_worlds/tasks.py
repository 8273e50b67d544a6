"""Readers of benchmarks: the tasks of the worlds that come with us, from the packages that ship them.

A reader runs `list_tasks` of the world's file in the world's interpreter; what it lists is kept beside the venv.
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
from workbench.spec import Found, Power, Written, instead_of_code, read_path, start_program
from workbench_worlds.interpreter import WORLDS, cache_folder, find_interpreter

#: argv: the world's file. stdin: what follows the reader's name, and its options.
_LIST = """
import json, runpy, sys
del sys.path[0]
place, options = json.load(sys.stdin)
list_tasks = runpy.run_path(sys.argv[1])["list_tasks"]
print("\\n" + json.dumps(list_tasks(*([place] if place else []), **options)))
"""


@dataclass(frozen=True)
class TaskReader:
    """The tasks of a world, e.g. `tau2:retail`: what follows the name is the first argument of its `list_tasks`, and
    options are the others."""

    world: str
    reads_file: bool = False

    def powers(self, location: Written) -> Found:
        """Its package is installed, which runs its code."""
        yield Power("runs Python", f"the world {self.world}", f"the world {self.world}", location.at)
        if (WORLDS / f"{self.world}.txt").is_file():
            yield start_program(location, f"pip install -r {self.world}.txt")
        if self.reads_file and isinstance(location.value, Mapping):
            yield read_path(location / "location", str(location.value.get("location")))

    def __call__(self, location: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """List the tasks, a row each. Blocks, for minutes where the package is installed first. Raises SpecError."""
        file, lock = WORLDS / f"{self.world}.py", WORLDS / f"{self.world}.txt"
        read = file_digest(Path(location)) if self.reads_file and Path(location).is_file() else ""
        folder = cache_folder() / "tasks"
        versions = [file_digest(path) for path in (file, lock) if path.is_file()]
        kept = folder / f"{digest([location, dict(options), versions, read])}.json"
        if not kept.is_file():
            if instead_of_code() != "code":
                why = f"listing the tasks of {self.world}:{location} runs the package that has them"
                raise SpecError(why, hint="Add --run-code, or run the workflow.")
            program = find_interpreter(lock.name, Path.cwd()) if lock.is_file() else sys.executable
            folder.mkdir(parents=True, exist_ok=True)
            place = str(Path(location).resolve()) if self.reads_file else location
            found = self._list([program, "-c", _LIST, str(file)], json.dumps([place, dict(options)]), folder, location)
            write_whole(kept, json.dumps(found))
        return json.loads(kept.read_text(encoding="utf-8"))

    def _list(self, command: list[str], told: str, folder: Path, location: str) -> list[dict[str, Any]]:
        done = subprocess.run(command, input=told, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason was told"])[-1][:1000]
            hint = f"See list_tasks in {self.world}.py of the plugin `worlds`: {self.world}: takes its arguments."
            raise SpecError(f"the tasks of {self.world}:{location} cannot be listed: {why}", hint=hint)
        return json.loads(done.stdout.splitlines()[-1])


agentdojo, bfcl, miniwob, pddlgym, scienceworld, tau2, textworld = map(
    TaskReader, ("agentdojo", "bfcl", "miniwob", "pddlgym", "scienceworld", "tau2", "textworld")
)
intercode = TaskReader("intercode_bash", reads_file=True)

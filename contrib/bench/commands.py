"""Commands that a user types, for the scripts beside this file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def workbench(*arguments: Any, db: Path) -> str:
    """What `workbench ARGUMENTS --db DB` prints. Raises RuntimeError where it fails; no gain is no failure."""
    command = [sys.executable, "-m", "workbench", *map(str, arguments), "--db", str(db)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1, 101):
        raise RuntimeError(f"{command}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr


def predict(file: Path, rows: Path, *, db: Path) -> list[Mapping[str, Any]]:
    """The answers of a workflow to the rows of a file. What its run has asked before is not asked again."""
    out = rows.with_name(f"{file.stem}-{rows.stem}.jsonl")
    workbench("predict", file, rows, "--out", out, "--cache", db=db)
    return [json.loads(line) for line in out.open()]

"""The processes of contrib/bench/promises, without their imports."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.helpers.forking import Job, run_module, start_file

OPTIMIZE = ("optimize", "workflow.yaml", "--out", "out.yaml")


def start(folder: Path, resume: bool, kill_at: str = "") -> Job:
    """As `kill_resume.start`."""
    return command(folder, *(("resume", "last") if resume else OPTIMIZE), "--json", kill_at=kill_at)


def command(folder: Path, *words: str, kill_at: str = "") -> Job:
    file, env = "contrib/bench/promises/kill_at.py", {"WORKBENCH_KILL_AT": kill_at}
    return start_file(file, *words, "--db", "run.db", env=env, cwd=folder)


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As `budget_ceiling.call`."""
    return run_module("workbench", *words, cwd=folder, timeout=120)

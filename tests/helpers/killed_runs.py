"""The processes of contrib/bench/promises/kill_resume.py, without their imports."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.forking import Job, start_file

OPTIMIZE = ("optimize", "workflow.yaml", "--out", "out.yaml")


def start(folder: Path, resume: bool, kill_at: str = "") -> Job:
    """As `kill_resume.start`."""
    return command(folder, *(("resume", "last") if resume else OPTIMIZE), "--json", kill_at=kill_at)


def command(folder: Path, *words: str, kill_at: str = "") -> Job:
    file, env = "contrib/bench/promises/kill_at.py", {"WORKBENCH_KILL_AT": kill_at}
    return start_file(file, *words, "--db", "run.db", env=env, cwd=folder)

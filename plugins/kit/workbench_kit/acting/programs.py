"""Programs that must end with this process, however it ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def dying_with_us() -> tuple[str, ...]:
    """Return a command prefix that kills a program together with the thread that started it; () if `setpriv` is
    missing."""
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "KILL", "--") if found else ()


def check_program(program: str, cwd: Path, env: Mapping[str, str]) -> None:
    """Raise OSError for a program that cannot be started, before `setpriv` reports it in its own words."""
    path = str(cwd / program) if os.sep in program else program
    if shutil.which(path, path=env.get("PATH", os.defpath)) is not None:
        return
    if os.sep in program and os.path.isfile(path):
        raise PermissionError(f"{program} is not executable; name what runs it before it, or use chmod +x")
    raise FileNotFoundError(f"there is no program '{program}'" + ("" if os.sep in program else " on its PATH"))

"""Missing files, commands and addresses of an agent (`workbench validate --deep`)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import Defect, DefectKind, SpecError
from workbench.spec import PREFIX, parse_address, read_user_code
from workbench_external.config import ExternalConfig

#: Words that can only be file names.
_SCRIPT = re.compile(r"[\w./-]+\.(?:py|js|mjs|cjs|ts|sh|rb|pl|php|jar)")


def find_missing_files(config: ExternalConfig, base: Path, folder: Path | None) -> Iterator[Defect]:
    """Find a program that is not on PATH, scripts that are neither next to the workflow file nor in the agent's folder,
    and a function that its file does not define. An image has other files, so its command is not checked."""
    if config.python is not None:
        yield from _find_missing_function(config.python, base)
    if config.command is None or config.image is not None:
        return
    program = config.command[0]
    if "{" not in program and shutil.which(program) is None and not (base / program).is_file():
        yield Defect(
            DefectKind.MISSING_SERVER,
            f"there is no program '{program}' on PATH or next to the workflow file",
            "Name one that can be started, e.g. python, or the path of one.",
            ("command", 0),
        )
    for place, word in enumerate(config.command[1:], 1):
        places = [base, *([folder] if folder is not None else [])]
        if _SCRIPT.fullmatch(word) and not any((one / word).is_file() for one in places):
            yield Defect(
                DefectKind.MISSING_SERVER,
                f"there is no file {base / word}",
                "Paths are relative to the workflow file.",
                ("command", place),
            )


def _find_missing_function(python: str, base: Path) -> Iterator[Defect]:
    address = parse_address(python.removeprefix(PREFIX))
    if not address.is_file and Path(base, *address.module.split(".")).is_dir():
        return  # a package, which would have to be imported
    try:
        read_user_code(python, base, "outlined")
    except SpecError as error:
        yield Defect(DefectKind.MISSING_SERVER, error.message, error.hint or "Correct it.", ("python",))

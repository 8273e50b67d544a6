"""Writing files: checked before anything is paid for, and whole or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from workbench.errors import SpecError


def check_writable(out: Path) -> None:
    """Raise SpecError if a file cannot be written there."""
    folder = next(p for p in (out.resolve().parent, *out.resolve().parent.parents) if p.exists())
    if out.is_dir():
        raise SpecError(f"--out {out}: that is a folder", hint="Name a file in it.")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise SpecError(f"--out {out}: nothing can be written in {folder}", hint="Name a file in a folder of yours.")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_private(path: Path) -> None:
    """Make an empty file that only its owner may read and write, unless there is one, which keeps its mode."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass


def write_whole(out: Path, text: str) -> None:
    """Write a file whole or not at all, and its folder if there is none. The text is written under another name first,
    so that no crash leaves half a file. A new file may be read by its owner alone; another keeps its mode."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # of a process that was killed
    make_private(part)
    part.write_text(text, encoding="utf-8")
    if out.exists():
        part.chmod(stat.S_IMODE(out.stat().st_mode))
    os.replace(part, out)

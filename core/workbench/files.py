"""Writing files: checked before anything is paid for, and whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from workbench.errors import SpecError


def check_writable(out: Path) -> None:
    """Raise SpecError if a file cannot be written there."""
    folder = next(p for p in (out.resolve().parent, *out.resolve().parent.parents) if p.exists())
    if out.is_dir():
        raise SpecError(f"--out {out}: that is a folder", hint="Name a file in it.")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise SpecError(f"--out {out}: nothing can be written in {folder}", hint="Name a file in a folder of yours.")


def write_whole(out: Path, text: str) -> None:
    """Write a file whole or not at all, and its folder if there is none. The text is written under another name first,
    so that no crash leaves half a file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, out)

"""Slots that are files in an agent's folder, such as `SKILL.md`. They are replaced whole if they are unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from workbench_external.config import Slot
from workbench_external.workspace import write_file

#: The header of a skill, by which its framework finds it.
_HEAD = re.compile(r"\A---[ \t]*\n.*?\n---[ \t]*(?:\n|\Z)", re.DOTALL)


def replace_files(folder: Path, slots: Iterable[tuple[str, Slot]]) -> list[str]:
    """Write the texts of slots to files of a row's folder. Returns the slots whose file is missing or has changed; such
    a file is not written."""
    missed: list[str] = []
    for name, slot in slots:
        if not is_as_found(folder / slot.name, slot):
            missed.append(f"{name}: {slot.name}")
        elif slot.text is not None and slot.text != slot.match:
            write_file(folder, slot.name, content_of(slot).encode("utf-8", "replace"))
    return missed


def is_as_found(path: Path, slot: Slot) -> bool:
    """Return True if a file has the text that the slot replaces. A slot without a text replaces any."""
    if not slot.match:
        return True
    try:
        return path.read_text(encoding="utf-8", errors="replace") == slot.match.replace("\r\n", "\n")
    except OSError:
        return False


def content_of(slot: Slot) -> str:
    """Return the new content of a file. If the new text has no YAML header, that of the old one is kept. If the old one
    ended with a newline, so does the new one."""
    text, head = slot.text or "", _HEAD.match(slot.match)
    text += "\n" if slot.match.endswith("\n") and not text.endswith("\n") else ""
    return text if head is None or text.lstrip().startswith("---") else f"{head[0].rstrip()}\n\n{text.lstrip()}"

"""Files of an agent's folder that are slots, as `SKILL.md`: replaced whole, where they still are what was found."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from workbench_external.config import Slot
from workbench_external.workspace import write_file

#: What stands at the head of a skill, by which its framework finds it.
_HEAD = re.compile(r"\A---[ \t]*\n.*?\n---[ \t]*(?:\n|\Z)", re.DOTALL)


def replace_files(folder: Path, slots: Iterable[tuple[str, Slot]]) -> list[str]:
    """Write the texts of slots in place of the files of a row's folder. Returns the slots whose file is another one
    than was found, or is not there; it stays as it is."""
    missed: list[str] = []
    for name, slot in slots:
        if not is_as_found(folder / slot.name, slot):
            missed.append(f"{name}: {slot.name}")
        elif slot.text is not None and slot.text != slot.match:
            write_file(folder, slot.name, content_of(slot).encode("utf-8", "replace"))
    return missed


def is_as_found(path: Path, slot: Slot) -> bool:
    """Return True if a file has the text that the slot replaces. A slot that says nothing of it replaces any."""
    if not slot.match:
        return True
    try:
        return path.read_text(encoding="utf-8", errors="replace") == slot.match.replace("\r\n", "\n")
    except OSError:
        return False


def content_of(slot: Slot) -> str:
    """The new content of a file. One that began with a head of YAML keeps it, where the new text has none; one that
    ended with a newline ends with one."""
    text, head = slot.text or "", _HEAD.match(slot.match)
    text += "\n" if slot.match.endswith("\n") and not text.endswith("\n") else ""
    return text if head is None or text.lstrip().startswith("---") else f"{head[0].rstrip()}\n\n{text.lstrip()}"

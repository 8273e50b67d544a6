"""Sections of a file rewritten for another folder: the paths that they declare still lead to the same files."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from workbench.base.type_guards import change_at, is_list
from workbench.lm import relocate_weights
from workbench.spec import PREFIX, SERVER, WORD, Power, relocate_address
from workbench.task.found_powers import find_powers

#: Sections in which all paths are rewritten, also to missing files or files to be written, such as labels.
_OF_FILES = ("data", "metric", "proof", "attacks")


def move_tree(tree: Any, base: Path, folder: Path) -> Any:
    """Rewrite sections of a file in `base` for a file in another folder. Outside of `_OF_FILES`, a path that leads
    nowhere is not changed, nor is a value that only a program reads, such as an environment variable."""
    base, folder = base.resolve(), folder.resolve()
    found = find_powers(tree, base, follow=False)
    for at in found.models:
        tree = change_at(tree, at, partial(relocate_weights, base=base, folder=folder))
    for power in found.powers if base != folder else ():
        if power.form and not any(power.at[: len(model)] == model for model in found.models):  # models move as a whole
            tree = change_at(tree, power.at, partial(_moved, power, base, folder))
    return tree


def _moved(power: Power, base: Path, folder: Path, value: Any) -> Any:
    if is_list(value) and power.form == "command":  # a program next to the file; its arguments are not changed
        return [_moved_path(word, base, folder) if (base / str(word)).is_file() else word for word in value]
    if not isinstance(value, str):
        return value
    if power.form == "address":
        if value.startswith(PREFIX):
            return relocate_address(value, base, folder)
        return relocate_address(f"{PREFIX}{value}", base, folder).removeprefix(PREFIX)
    if power.form == "command":  # it runs in the folder of the file
        prefix = SERVER if value.startswith(SERVER) else ""
        command, mark, tool = value.removeprefix(prefix).rpartition("#")
        moved = WORD.sub(lambda word: _moved_path(word[0], base, folder), command or tool)
        return f"{prefix}{moved}{mark}{tool}" if command else f"{prefix}{moved}"
    path, mark, rest = value.partition("#") if power.text != value else (value, "", "")  # FILE#nodes.NAME
    certain = power.at[0] in _OF_FILES and ":" not in path  # READER:PLACE
    return f"{_moved_path(path, base, folder, certain)}{mark}{rest}"


def _moved_path(path: Any, base: Path, folder: Path, certain: bool = False) -> Any:
    if not isinstance(path, str) or not path or path.startswith(("-", "~")) or Path(path).is_absolute():
        return path
    return os.path.relpath(base / path, folder) if certain or os.path.lexists(base / path) else path

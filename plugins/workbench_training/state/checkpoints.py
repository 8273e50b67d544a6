"""Which weights and training records beside a run database are no longer needed."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

#: The folder of a candidate's weights is named by a digest of them.
_WEIGHTS = re.compile(r"[0-9a-f]{16}")


def removable_files(database: Path, runs: Collection[int], kept: Collection[str]) -> list[Path]:
    """Folders in `DATABASE-weights`: records of finished runs, and weights that no kept text names.

    Args:
        database: the run database.
        runs: numbers of finished runs.
        kept: the texts of all workflows that may still be used.
    """
    home = database.with_name(f"{database.stem}-weights")
    if home.is_symlink() or not home.is_dir():
        return []
    found = []
    for folder in home.iterdir():
        if folder.is_symlink() or not folder.is_dir():
            continue
        record = re.match(r"run-(\d+)-", folder.name)
        if record:
            unused = int(record[1]) in runs
        else:
            unused = bool(_WEIGHTS.fullmatch(folder.name)) and not any(folder.name in text for text in kept)
        found += [folder] if unused else []
    return found

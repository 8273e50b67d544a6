"""Which weights and training records beside a run database are no longer needed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

#: The folder of a candidate's weights is named by a digest of them.
_WEIGHTS = re.compile(r"[0-9a-f]{16}")


def removable_files(database: Path, runs: Collection[int], kept: Collection[str]) -> list[Path]:
    """List what may be removed from `DATABASE-weights`: records of finished runs, and weights that no kept text names.

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
        found += [folder, *_claims(folder)] if unused else []
    return found


def list_losers(submitted: Mapping[str, Collection[str]], scores: Mapping[str, float], keep: int) -> set[str]:
    """The folders of scored candidates that are not among the best `keep`; of equal ones the earlier is better, as in
    the study. A folder that a better one, or one without a score, uses, too, is none of them.

    Args:
        submitted: the folders of each candidate, by its step.
        scores: of candidates on val, by step.
        keep: how many stay.
    """
    best = sorted(scores, key=lambda key: (-scores[key], int(key)))[:keep]
    kept = {name for key, names in submitted.items() if key in best or key not in scores for name in names}
    return {name for names in submitted.values() for name in names} - kept


def claim_weights(folder: Path, training: str) -> None:
    """Note that a training, by the name of its record, submits the weights of a folder."""
    _claim(folder, training).touch()


def drop_weights(folder: Path, training: str) -> None:
    """Delete the weights of a candidate that lost, unless another training submits them, too."""
    _claim(folder, training).unlink(missing_ok=True)
    if not _claims(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _claim(folder: Path, training: str) -> Path:
    """Beside the folder: what lies in it is part of the weights' identity."""
    return folder.with_name(f"{folder.name}.{training}")


def _claims(folder: Path) -> list[Path]:
    return [path for path in folder.parent.glob(f"{folder.name}.*") if path.is_file() and not path.is_symlink()]

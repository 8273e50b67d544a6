"""Selection of the rows that an evaluation scores."""

from __future__ import annotations

from workbench.errors import SpecError
from workbench.task import Example, Task

SPLITS = ("train", "val", "test")


def default_split(task: Task) -> str:
    """Return val, or the split that exists."""
    there = [name for name in ("val", "test", "train") if _count(task, name)]
    return there[0] if there else "val"


def describe_rest(task: Task) -> list[str]:
    """Warn that most rows are not scored, if the file names one data file and the user chose no split."""
    data, split = task.spec.data, default_split(task)
    scored, rows = _count(task, split), sum(_count(task, name) for name in SPLITS)
    if data.split is not None or data.file is None or scored == rows:
        return []
    return [f"scored are {scored} of the {rows} rows ({split}); --split all scores all of them"]


def _count(task: Task, split: str) -> int:
    return len(getattr(task.dataset, split))


def check_rows(task: Task, split: str | None, repeats: int) -> None:
    """Raise SpecError for a missing or empty split, and for a number of repeats below 1."""
    if split not in (*SPLITS, "all"):
        raise SpecError(f"there is no split '{split}'", hint=f"Name one of {', '.join(SPLITS)}, all.")
    if repeats < 1:
        raise SpecError(f"repeats is {repeats}", hint="Run each row at least once.")
    if not split_rows(task, split):
        there = ", ".join(name for name in SPLITS if _count(task, name))
        raise SpecError(
            f"{split} has no rows",
            hint="; ".join(task.dataset.warnings) or f"Name another with --split: {there or 'none has any'}.",
        )


def split_rows(task: Task, split: str) -> tuple[Example, ...]:
    """Return the rows of train, val, test or all."""
    if split == "all":
        return tuple(row for name in SPLITS for row in split_rows(task, name))
    return task.dataset.test.open() if split == "test" else getattr(task.dataset, split)

"""Joining the runs that search one study with this one."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.base.hashing import digest
from workbench.errors import SpecError
from workbench.study import Joining, Optimizer
from workbench.task import Task

#: Keys of a workflow file that may differ between the searchers of one study, or are compared in another way: rows by
#: their hash, the budget and their own settings by optimizers.
_OWN = {"name", "description", "concurrency", "timeout", "track", "cache", "configurations", "data"}
_OWN |= {"budget", "optimize"}


def shared_turn(turns: Sequence[tuple[str, Optimizer]]) -> int | None:
    """The place of the first optimizer that searches a study with other runs; None if there is none."""
    return next((place for place, (_, optimizer) in enumerate(turns) if optimizer.shares_study()), None)


def check_alone(optimizers: Sequence[tuple[str, Optimizer]], rounds: int) -> None:
    """Raise SpecError where a shared study is not the whole search: each of the others would begin elsewhere."""
    place = shared_turn(optimizers)
    if place is not None and (len(optimizers) > 1 or rounds > 1):
        name = optimizers[place][0]
        raise SpecError(
            f"`{name}` searches a study with other runs, and each of them would start it from what its other "
            "optimizers and rounds have found",
            hint=f"Leave `{name}` alone under optimize, with rounds: 1, or remove its storage.",
            path=("optimize", place, name, "storage"),
        )


def joining(task: Task, run: str) -> Joining:
    """Hash what the others compare before this run joins them: rows, the file, and the files that it names."""
    written = {key: digest(value) for key, value in task.source.value.items() if key not in _OWN}
    compared = {**written, "nodes": task.workflow.hash, "data": task.data_hash, "named files": task.external_hash}
    return Joining(run, task.spec.name, compared)

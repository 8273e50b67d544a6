"""What finished runs no longer need: rows of losing candidates, and files of plugins, such as checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from workbench.plugins import plugins
from workbench.run.history import status_of
from workbench.store import Candidates, RunRecord, Store, read_report
from workbench.type_guards import walk


def removable_files(store: Store, rows: Sequence[Any]) -> list[Path]:
    """The files that plugins wrote for these finished runs, and that neither they nor others need any more. None while
    a run is running: weights that it has just trained are in no stored workflow yet."""
    if any(status_of(store, row) == "running" for row in store.list_runs()):
        return []
    pruned, kept = {row["id"] for row in rows}, set[str]()
    for row in store.list_runs():
        candidates = Candidates(store, row["id"])
        needed = _needed(candidates, row) if row["id"] in pruned else [c["hash"] for c in candidates.read_all()]
        for hash_ in needed:
            kept.update(part for part in walk(candidates.find_tree(hash_)) if isinstance(part, str))
    found = plugins().manager.hook.removable_files(database=store.path.resolve(), runs=pruned, kept=kept)
    return sorted({path for paths in found for path in paths})


def prune_run(store: Store, row: Any) -> int:
    """Remove the rows of a finished run's losing candidates. Their scores stay. Returns how many rows."""
    return RunRecord(store, row["id"]).remove_losers(_needed(Candidates(store, row["id"]), row))


def _needed(candidates: Candidates, row: Any) -> Collection[str]:
    """The candidates of a finished run that can still be asked for: baseline, winner, Pareto set."""
    report = read_report(row) or {}
    chosen = [report["best"]["workflow"]] if "best" in report else []
    chosen += [str(point.get("workflow")) for point in report.get("pareto") or ()]
    known = {c["hash"] for c in candidates.read_all()}
    baseline = candidates.find_baseline()
    return known & {*chosen, *([baseline] if baseline else [])}

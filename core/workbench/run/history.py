"""Queries on stored runs: status, candidates, inputs, changes; drawing and pruning. Nothing runs their code."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from workbench.base.type_guards import walk
from workbench.errors import PluginError, SpecError, StoreError, WorkbenchError
from workbench.plugins import plugins
from workbench.run.stored_file import read_stored_file
from workbench.spec import Spec
from workbench.store import Candidates, RunLock, RunRecord, Store, read_options, read_report
from workbench.task import data_path, load_data
from workbench.workflow import Workflow, list_changes, mermaid


def status_of(store: Store, row: Any) -> str:
    """Return a run's status; "killed" if it is stored as running on this machine, but no process holds its lock."""
    if row["status"] == "running" and row["host"] == os.uname().nodename and not RunLock(store, row["run"]).held():
        return "killed"
    return row["status"]


def origin_of(row: Any) -> dict[str, str] | None:
    """Return the run and candidate that a run starts from; None if it starts from its file."""
    return read_options(row).get("branched_from")


def candidates(store: Store, run_id: int) -> list[dict[str, Any]]:
    """List every candidate with its score on val (None if its evaluation never finished)."""
    return Candidates(store, run_id).read_all()


def lineage(found: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    """List all candidates as (depth, candidate), each after its parent."""
    children: dict[Any, list[Mapping[str, Any]]] = {}
    hashes = {c["hash"] for c in found}
    for c in found:
        children.setdefault(c["parent"] if c["parent"] in hashes else None, []).append(c)
    ordered: list[tuple[int, Mapping[str, Any]]] = []
    rest = [(0, c) for c in reversed(children.get(None, []))]
    while rest:
        depth, c = rest.pop()
        ordered.append((depth, c))
        rest += [(depth + 1, child) for child in reversed(children.get(c["hash"], []))]
    return ordered


def candidate_workflow(store: Store, run_id: int, hash_: str | None) -> Workflow | None:
    """Return the candidate with this hash or prefix (None: the baseline); None if there is none."""
    tree = Candidates(store, run_id).find_tree(hash_)
    return None if tree is None else Workflow(tree)


def winner_of(report: Mapping[str, Any] | None) -> str | None:
    """Return the hash of the winner, or of the evaluated workflow, in a stored report. None without a report, and for
    reports of other kinds."""
    if report is None or report.get("kind") not in (None, "eval"):
        return None
    return report["workflow"] if report.get("kind") == "eval" else report["best"]["workflow"]


def read_input_names(row: Any) -> list[str]:
    """List the fields that the workflow of an evaluation reads from a row."""
    return [str(name) for name in cast(list[Any], read_options(row).get("inputs", []))]


def row_inputs(store: Store, row: Any) -> dict[str, dict[str, Any]]:
    """Return, by row id, the fields that the baseline reads; empty if file or data are gone or have changed. No code is
    run: fields that only the code of a tool names are left out."""
    try:
        file = read_stored_file(row)
        base = candidate_workflow(store, row["id"], None)
        if base is None or not all(data_path(place, file.base).is_file() for place in _data_places(file.spec)):
            return {}  # a query about a run asks no server for its rows
        inputs = Workflow(base.tree, file.base).input_fields
        data = load_data(file.spec, file.base, "unread")
    except (SpecError, PluginError):
        return {}
    if data.data_hash != row["data_hash"]:
        return {}
    rows = (*data.train, *data.val, *data.test.open())
    return {e.id: {k: e.fields[k] for k in inputs if k in e.fields} for e in rows}


def _data_places(spec: Spec) -> list[str]:
    data = spec.data
    return [place for place in (data.file, data.train, data.val, data.test) if place]


def draw_winner(store: Store, run: str) -> str:
    """Draw the winner of a run (the baseline before there is one) as a flowchart, from its tree without its code.

    Facts that only a tool's code shows, such as the fields that a `tool` node without `arguments` reads, are missing.
    Raises StoreError.
    """
    row = store.find_run(run, kinds=("optimize",))
    found = candidate_workflow(store, row["id"], winner_of(read_report(row)))
    if found is None:
        raise StoreError(f"run {row['run']} has no candidates yet")
    workflow = Workflow(found.tree, read_stored_file(row).base)
    try:
        workflow.check()
        return mermaid(workflow)
    except RecursionError:
        raise StoreError(f"the winner of run {row['run']} is nested too deeply to be drawn") from None


def changes_between(row: Any, before: Workflow, after: Workflow) -> list[tuple[str, Any, Any]]:
    """List the differences between candidates of a run (`list_changes`)."""
    try:
        return list_changes(before, after, read_stored_file(row).spec.lm)
    except WorkbenchError:  # its file can no longer be read
        return before.diff(after)


def removable_files(store: Store, rows: Sequence[Any]) -> list[Path]:
    """List the files that plugins wrote for these finished runs, and that no run needs any more. Empty while any run is
    running: weights that it has just trained are in no stored workflow yet."""
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
    """Remove the rows of a finished run's losing candidates, but not their scores. Returns the number of rows."""
    return RunRecord(store, row["id"]).remove_losers(_needed(Candidates(store, row["id"]), row))


def _needed(candidates: Candidates, row: Any) -> Collection[str]:
    """Return the candidates of a finished run that users may still ask for: baseline, winner, Pareto set."""
    report = read_report(row) or {}
    chosen = [report["best"]["workflow"]] if "best" in report else []
    chosen += [str(point.get("workflow")) for point in report.get("pareto") or ()]
    known = {c["hash"] for c in candidates.read_all()}
    baseline = candidates.find_baseline()
    return known & {*chosen, *([baseline] if baseline else [])}

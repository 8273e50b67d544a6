"""Queries on stored runs: status, candidates, failures, calls; and the export of candidates."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import StoreError, WorkbenchError
from workbench.files import write_whole
from workbench.plugins import plugins
from workbench.run.start import prepare_stored
from workbench.store import Candidates, Evaluations, Journal, RunLock, Store
from workbench.task import dump_yaml, workflow_tree
from workbench.workflow import Workflow


def status_of(store: Store, row: Any) -> str:
    """A run's status; "killed" if it is stored as running on this machine, and no process holds its lock."""
    if row["status"] == "running" and row["host"] == os.uname().nodename and not RunLock(store, row["run"]).held():
        return "killed"
    return row["status"]


def candidates(store: Store, run_id: int) -> list[dict[str, Any]]:
    """Every candidate with its score on val (None if no evaluation of it was finished)."""
    return [dict(row) for row in Candidates(store, run_id).read_all()]


def lineage(found: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    """All candidates as (depth, candidate), each after its parent."""
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
    """The candidate with this hash or prefix of a hash (None: the baseline). Returns None if there is none."""
    tree = Candidates(store, run_id).find_tree(hash_)
    return None if tree is None else Workflow(tree)


def worst_rows(store: Store, row: Any, report: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The test rows on which a run's winner scores below 1, worst first, with `inputs` if the data are unchanged."""
    if report is None:
        return []
    found = Evaluations(store, row["id"]).read_imperfect_test_rows(report["best"]["workflow"])
    inputs = _test_inputs(row)
    return [{**r, "inputs": inputs.get(r["example"])} for r in found]


def _test_inputs(row: Any) -> dict[str, dict[str, Any]]:
    try:
        task = prepare_stored(row)
    except WorkbenchError:
        return {}  # file or data are gone
    if task.data_hash != row["data_hash"]:
        return {}
    return {e.id: {k: e.fields[k] for k in task.inputs if k in e.fields} for e in task.dataset.test.open()}


def call_texts(store: Store, run_id: int, n: int) -> list[dict[str, Any]]:
    """n calls of a run with their texts, in no particular order."""
    return [
        {
            "key": call["key"],
            "role": call["role"],
            "outcome": call["outcome"],
            "messages": call["request"]["messages"],
            "answer": json.loads(call["response"])["text"] if call["response"] else call["message"],
        }
        for call in Journal(store, run_id).read_calls(n)
    ]


def export_candidate(store: Store, run: str, candidate: str | None, form: str, out: Path | None) -> str | None:
    """Export a candidate as YAML, or through an exporter plugin. Returns YAML text if `out` is None, else None.

    Args:
        store: the run database.
        run: name of the run, or a prefix of it.
        candidate: its hash or a prefix of it; None: the winner.
        form: `yaml`, or the name of an exporter.
        out: file or folder to write.

    Raises:
        StoreError: there is no such run or candidate, or `out` cannot be written.
        PluginError: there is no such exporter.
    """
    row = store.find_run(run)
    report = json.loads(row["report"]) if row["report"] else None
    chosen = candidate or (report["best"]["workflow"] if report else None)
    found = candidate_workflow(store, row["id"], chosen)
    if found is None:
        raise StoreError(f"run {row['run']} has no candidate '{chosen}'; see workbench show {row['run']}")
    task = prepare_stored(row)
    workflow = Workflow(found.tree, task.workflow.base)
    if form == "yaml":
        text = dump_yaml(workflow_tree(task, workflow, (out.resolve().parent if out else Path.cwd())))
        if out is None:
            return text
        try:
            write_whole(out, text)
        except OSError as error:
            raise StoreError(f"{out} cannot be written: {error}; choose another path with --out") from None
        return None
    exporter = plugins().get("exporters", form)
    there = {folder for folder in ((out, *out.parents) if out else ()) if folder.exists()}
    try:
        exporter(workflow, out, **({"task": task} if getattr(exporter, "needs_task", False) else {}))
    except BaseException:
        _remove_empty_folders(out, there)
        raise
    return None


def _remove_empty_folders(out: Path | None, there: Collection[Path]) -> None:
    """Remove the empty folders that a failed export created. there: folders that existed before."""
    for folder in (out, *out.parents) if out else ():
        if folder in there or not folder.is_dir() or any(folder.iterdir()):
            return
        folder.rmdir()

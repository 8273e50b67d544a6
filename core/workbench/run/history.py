"""What the run database tells of a run: candidates, failures, calls, and any candidate written out again."""

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
    """A run's status; "killed" for one that says running though no process of this machine has its lock."""
    if row["status"] == "running" and row["host"] == os.uname().nodename and not RunLock(store, row["run"]).held():
        return "killed"
    return row["status"]


def candidates(store: Store, run_id: int) -> list[dict[str, Any]]:
    """Every candidate with its score on val (None if it was never evaluated to the end)."""
    return [dict(row) for row in Candidates(store, run_id).read_all()]


def lineage(found: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    """Candidates with their depth below the first one, each after its parent."""
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
    """A candidate by (a beginning of) its hash; None asks for the first one, the baseline."""
    tree = Candidates(store, run_id).find_tree(hash_)
    return None if tree is None else Workflow(tree)


def worst_rows(store: Store, row: Any, report: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The test rows on which the winner of a run scores below 1, worst first. inputs: what they say, where the data are
    still those of the run."""
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
    """n calls of a run, in no order (the journal keeps none), with their texts put back."""
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
    """A candidate as YAML text (written to out if given), or through an exporter plugin. Raises StoreError."""

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
            raise StoreError(f"{out} cannot be written: {error}") from None
        return None
    exporter = plugins().get("exporters", form)
    there = {folder for folder in ((out, *out.parents) if out else ()) if folder.exists()}
    try:
        exporter(workflow, out, **({"task": task} if getattr(exporter, "needs_task", False) else {}))
    except BaseException:
        _leave_no_empty_folder(out, there)
        raise
    return None


def _leave_no_empty_folder(out: Path | None, there: Collection[Path]) -> None:
    """Remove the folders that an export made and put nothing into."""
    for folder in (out, *out.parents) if out else ():
        if folder in there or not folder.is_dir() or any(folder.iterdir()):
            return
        folder.rmdir()

"""What the run database tells of a run: candidates, failures, calls, and any candidate written out again."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import StoreError, WorkbenchError
from workbench.plugins import plugins
from workbench.run.start import prepare_stored
from workbench.store import RunLock, Store
from workbench.task import dump_yaml, workflow_tree, write_whole
from workbench.workflow import Workflow


def status_of(store: Store, row: Any) -> str:
    """A run's status; "killed" for one that says running though no process of this machine has its lock."""
    if row["status"] == "running" and row["host"] == os.uname().nodename and not RunLock(store, row["run"]).held():
        return "killed"
    return row["status"]


def candidates(store: Store, run_id: int) -> list[dict[str, Any]]:
    """Every candidate with its score on val (None if it was never evaluated to the end)."""
    rows = store.rows(
        "select c.hash, c.parent, c.optimizer, c.note, e.score as val, e.failed, e.objectives from candidates c "
        "left join evaluations e on e.run_id = c.run_id and e.candidate = c.hash and e.split = 'val' "
        "and e.complete = 1 and e.replica = 0 where c.run_id = ? order by c.seq",
        run_id,
    )
    return [dict(row) for row in rows]


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
    if hash_ is None:
        row = store.row("select tree from candidates where run_id = ? order by seq limit 1", run_id)
    else:
        row = store.row(
            "select tree from candidates where run_id = ? and hash like ? || '%' order by seq", run_id, hash_
        )
    return None if row is None else Workflow(json.loads(row["tree"]))


def worst_rows(store: Store, row: Any, report: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The test rows on which the winner of a run scores below 1, worst first. inputs: what they say, where the data are
    still those of the run."""
    if report is None:
        return []
    found = store.rows(
        "select r.example, r.score, r.failure, r.feedback, r.prediction from results r "
        "join evaluations e on e.id = r.evaluation_id where e.run_id = ? and e.candidate = ? and e.split = 'test' "
        "and (r.score is null or r.score < 1) order by r.score, r.position",
        row["id"],
        report["best"]["workflow"],
    )
    inputs = _test_inputs(row)
    return [{**dict(r), "inputs": inputs.get(r["example"])} for r in found]


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
    found = []
    for row in store.rows("select * from calls where run_id = ? and kind = 'lm' limit ?", run_id, n):
        request = json.loads(row["request"])
        for message in request["messages"]:
            content = message.get("content")
            if isinstance(content, dict) and "text" in content:
                text = store.row("select text from texts where hash = ?", content["text"])
                message["content"] = text["text"] if text else "(missing)"
        answer = json.loads(row["response"])["text"] if row["response"] else row["message"]
        found.append(
            {
                "key": row["key"],
                "role": row["role"],
                "outcome": row["outcome"],
                "messages": request["messages"],
                "answer": answer,
            }
        )
    return found


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

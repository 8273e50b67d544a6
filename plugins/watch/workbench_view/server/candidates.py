"""A candidate: its changes, its scores, and its full content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from workbench.run import candidate_workflow, candidates, changes_between, winner_of
from workbench.store import Evaluations, Store, kind_of, read_report
from workbench.task import dump_yaml
from workbench.workflow import Workflow
from workbench_view.server.site import NotFound, Site, find_run
from workbench_view.server.steering import read_orders
from workbench_view.text_diff import list_changes


def candidate_page(site: Site, store: Store, request: Request) -> Response:
    row, hash_ = find_run(store, request), str(request.path_params["hash"])
    report, found = read_report(row), candidates(store, row["id"])
    one = next((c for c in found if c["hash"] == hash_), None)
    workflow = candidate_workflow(store, row["id"], hash_) if one else None
    if one is None or workflow is None:
        raise NotFound(f"Run {row['run']} has no candidate '{hash_[:80]}'.")
    known = {c["hash"] for c in found}
    baseline = (report or {}).get("baseline", {}).get("workflow") or found[0]["hash"]
    parent = one["parent"] if one["parent"] in known else None
    against = baseline if request.query_params.get("against") == "baseline" else parent
    other = candidate_workflow(store, row["id"], against) if against else None
    orders = read_orders(store, row["id"])["orders"]
    winner = winner_of(report) if kind_of(row) == "optimize" else None
    done = [dict(one) for one in Evaluations(store, row["id"]).list_all()]
    return site.render(
        request,
        "candidate.html",
        run={"run": row["run"], "name": row["name"]},
        one=one,
        parent=parent,
        baseline=baseline,
        against=against,
        kind=kind_of(row),
        branches=[str(one["data"]["run"]) for one in orders if is_branch_of(one, hash_)],
        winner=winner,
        others=list_comparisons(done, hash_, baseline, winner),
        changes=list_changes(changes_between(row, other, workflow)) if other else [],
        evaluations=[e for e in done if e["candidate"] == hash_],
        children=[c for c in found if c["parent"] == hash_],
        texts=read_texts(workflow),
        tree=dump_yaml(workflow.tree),
    )


def list_comparisons(
    evaluations: Sequence[Mapping[str, Any]], one: str, baseline: str, winner: str | None
) -> list[dict[str, str]]:
    """Return the pairs (`a`, `b`) to compare a candidate in, the older first: `name` of the other one, and the `split`
    with rows of both. The sealed rows come first; a candidate that lost has none."""
    found: list[dict[str, str]] = []
    for name, a, b in (("baseline", baseline, one), ("winner", one, winner)):
        splits = [{e["split"] for e in evaluations if e["candidate"] == side} for side in (a, b)]
        split = next((split for split in ("test", "val") if all(split in known for known in splits)), None)
        if a != b and b is not None and split is not None:
            found.append({"name": name, "a": a, "b": b, "split": split})
    return found


def is_branch_of(order: Mapping[str, Any], candidate: str) -> bool:
    """Return True if an order began a run at this candidate."""
    return order["kind"] == "branch" and order["data"].get("candidate") == candidate


def read_texts(workflow: Workflow) -> dict[str, str]:
    """Return the instructions of the nodes, by address."""
    nodes: Mapping[str, Any] = workflow.tree.get("nodes", {})
    return {
        f"nodes.{name}.instructions": node["instructions"]
        for name, node in nodes.items()
        if isinstance(node.get("instructions"), str)
    }

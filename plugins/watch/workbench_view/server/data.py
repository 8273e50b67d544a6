"""The rows of a run's data, as stored in the database: copies, clusters, and rows in two splits."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from workbench.evaluation import read_rows
from workbench.run import winner_of
from workbench.store import Evaluations, RunRecord, Store, kind_of, read_report
from workbench_view.server.rows import default_candidate
from workbench_view.server.site import NotFound, Site, find_run, url, whole_number
from workbench_view.server.stored import read_inputs

#: Rows per page, and maximum groups of copies to list.
PAGE, GROUPS = 100, 100
#: Filters of rows.
KINDS = {"copies": "copies of another row", "clusters": "in a cluster of several", "leaks": "in two splits"}


def data_page(site: Site, store: Store, request: Request) -> Response:
    row = find_run(store, request)
    report = read_report(row)
    rows = read_data(store, row, report)
    if not rows:
        raise NotFound(f"Run {row['run']} has stored no rows yet.")
    groups = {"copies": group(rows, "row_key"), "clusters": group(rows, "cluster")}
    groups["leaks"] = [one for one in groups["clusters"] if len({row["split"] for row in one}) > 1]
    asked = {name: request.query_params.get(name, "") for name in ("split", "kind", "text")}
    found = [one for one in rows if not asked["split"] or one["split"] == asked["split"]]
    if asked["kind"] in groups:
        members = {one["example"] for some in groups[asked["kind"]] for one in some}
        found = [one for one in found if one["example"] in members]
    inputs = _inputs(site, store, row, report, [one["example"] for one in found] if asked["text"] else [])
    if asked["text"]:
        text = asked["text"].lower()
        found = [one for one in found if text in _said(one, inputs).lower()]
    page, pages = whole_number(request, "page"), max(1, -(-len(found) // PAGE))
    shown = found[(min(page, pages) - 1) * PAGE : min(page, pages) * PAGE]
    inputs = inputs or _inputs(site, store, row, report, [one["example"] for one in shown])
    here = f"/runs/{row['run']}/data"
    return site.render(
        request,
        "data.html",
        run={"run": row["run"], "name": row["name"]},
        asked=asked,
        rows=[{**one, "inputs": inputs.get(one["example"]) or {}} for one in shown],
        counts={split: sum(one["split"] == split for one in rows) for split in dict.fromkeys(r["split"] for r in rows)},
        groups={name: some[:GROUPS] for name, some in groups.items()},
        sizes={name: len(some) for name, some in groups.items()},
        kinds=KINDS,
        warnings=[line for line in (report or {}).get("warnings", []) if _is_about_data(line)],
        excluded=(report or {}).get("gain", {}).get("excluded", 0),
        found=len(found),
        page=min(page, pages),
        pages=pages,
        turn=lambda number: url(here, **asked, page=number),
    )


def read_data(store: Store, row: Any, report: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the scored rows, each once per split: example, split, row_key, cluster. Train rows that only an optimizer
    has used are known by their ids, so their keys are None."""
    evaluations, seen = Evaluations(store, row["id"]), dict[tuple[str, str], dict[str, Any]]()
    handles = RunRecord(store, row["id"]).read_handles()
    asked = (
        default_candidate(store, row, report),
        (report or {}).get("baseline", {}).get("workflow"),
        winner_of(report),
    )
    for candidate in dict.fromkeys(one for one in asked if one):
        for one in evaluations.list_keys(candidate):
            known = seen.setdefault((one["split"], one["example"]), dict(one))
            if known["row_key"] is None:
                known |= dict(one)
    for one in seen.values():
        one["handle"] = handles.get(one["example"], one["example"])
    order = ("train", "val", "test")
    return sorted(seen.values(), key=lambda one: order.index(one["split"]) if one["split"] in order else len(order))


def group(rows: Sequence[Mapping[str, Any]], key: str) -> list[list[Mapping[str, Any]]]:
    """Return groups of several rows with the same key, the largest groups first."""
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for one in rows:
        if one[key] is not None:
            found[one[key]].append(one)
    return sorted((some for some in found.values() if len(some) > 1), key=len, reverse=True)


def _inputs(
    site: Site, store: Store, row: Any, report: Mapping[str, Any] | None, examples: Sequence[str]
) -> Mapping[str, Mapping[str, Any]]:
    if not examples:
        return {}
    if kind_of(row) != "eval":
        return read_inputs(site, store, row)
    candidate = default_candidate(store, row, report)
    found = read_rows(store, row, report, candidate, examples=examples, parsed=("cost", "fields"))
    return {one["example"]: one["fields"] or {} for one in found}


def _said(one: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    fields = json.dumps(inputs.get(one["example"]) or {}, ensure_ascii=False, default=str)
    return f"{one['example']} {one['handle']} {fields}"


def _is_about_data(line: str) -> bool:
    return any(word in line for word in ("row", "split", "copies", "copy", "repeats", "memorised"))

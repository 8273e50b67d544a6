"""The page of a run: its progress while it runs, and its report afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from workbench.errors import WorkbenchError
from workbench.evaluation import stored_report
from workbench.run import candidates, lineage, read_stored_source, status_of, winner_of
from workbench.store import Candidates, Evaluations, Journal, RunRecord, Store, kind_of, read_report, tags_of
from workbench_view import page as drawn
from workbench_view.facts import Summary, read_summary
from workbench_view.noise import noise_band
from workbench_view.server.branching import read_origin
from workbench_view.server.site import NotFound, Site, find_run
from workbench_view.server.steering import read_orders
from workbench_view.server.stored import mean_scores, read_inputs, shorten
from workbench_view.text_diff import list_changes

#: Maximum events, changed rows and candidates on the page of a run; others have pages of their own.
EVENTS, ROWS, CANDIDATES = 40, 20, 200
#: Events shown under another heading: the machine under the provenance, steering under the orders.
ELSEWHERE = ("machine", "steered", "rows_named")
#: Maximum calls for which tokens and dollars are summed each second.
SUMMED = 20_000


def run_page(site: Site, store: Store, request: Request) -> Response:
    row = find_run(store, request)
    report, status = read_report(row), status_of(store, row)
    shown = {
        "run": {key: row[key] for key in ("run", "name", "started", "finished", "note", "file")},
        "kind": kind_of(row),
        "status": status,
        "tags": tags_of(row),
        "origin": read_origin(store, row),
        "provenance": _provenance(row),
    }
    if status == "running" or report is None:
        return site.render(request, "running.html", **shown, **read_progress(store, row, status))
    if kind_of(row) == "eval":
        return site.render(request, "eval.html", **shown, **_evaluated(store, row, report))
    if kind_of(row) != "optimize":
        raise NotFound(f"Run {row['run']} is one of `{kind_of(row)}`, which has no page.")
    sides = read_sides(store, row, report)
    summary = _summary(site, store, row, report, sides)
    inputs, first = read_inputs(site, store, row), sides["first"] if sides else ()
    values = {
        **shown,
        "facts": summary,
        "report": report,
        "provenance": shown["provenance"] | {key: value for one in summary.machine for key, value in one.items()},
        "changes": list_changes(summary.changes),
        "pictures": list(drawn.list_pictures(summary)),
        "sides": sides,
        "said": {name: shorten(inputs.get(name) or {}) for name in (one["example"] for one in first)},
        "tree": list_candidates(summary.tree, report)[:CANDIDATES],
        "candidates": len(summary.tree),
        "roles": {role: _price(spent) for role, spent in report["spent"].get("by_role", {}).items()},
    }
    return site.render(request, "run.html", **values)


def _summary(site: Site, store: Store, row: Any, report: Mapping[str, Any], sides: Mapping[str, Any] | None) -> Summary:
    key = ("summary", row["run"], row["checksum"], row["finished"], row["status"])
    return site.remember(key, lambda: read_summary(store, row, report, sides["noise"] if sides else None))


def picture(site: Site, store: Store, request: Request) -> Response:
    """Return a plot of a finished run as an image: its inline styles are not allowed in a page."""
    row, name = find_run(store, request), str(request.path_params["name"])
    report = read_report(row)
    if report is None or kind_of(row) != "optimize":
        raise NotFound("There is no such picture.")

    def draw() -> str:
        summary = _summary(site, store, row, report, read_sides(store, row, report))
        pictures = drawn.list_pictures(summary)
        if name not in pictures:
            raise NotFound("There is no such picture.")
        svg = pictures[name]()
        colours = drawn.read_style().split("* {")[0]
        start = svg.index(">", svg.index("<svg")) + 1
        return f"{svg[:start]}<style>{colours}</style>{svg[start:]}"

    key = ("picture", row["run"], name, row["checksum"], row["finished"])
    policy = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
    return Response(site.remember(key, draw), headers=policy, media_type="image/svg+xml")


def _price(spent: Mapping[str, Any]) -> dict[str, Any]:
    calls = spent.get("calls") or 0
    return {**spent, "usd_each": spent["usd"] / calls if calls else None}


def _provenance(row: Any) -> dict[str, Any]:
    left_out = ("id", "run", "name", "pid", "options", "report", "spec", "checksum", "spec_checksum", "tags", "note")
    found = {key: row[key] for key in row.keys() if key not in left_out}  # noqa: SIM118  # of a sqlite3.Row
    return {key: value for key, value in found.items() if value is not None}


# Rows that changed sides


def read_sides(store: Store, row: Any, report: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the sealed rows that the winner scores differently from the baseline, losses first; None if they were not
    tested, or were pruned."""
    baseline, winner = Candidates(store, row["id"]).find_baseline(), winner_of(report)
    before, after = (mean_scores(store, row["id"], hash_, "test") for hash_ in (baseline, winner))
    shared = [(name, before[name], after[name]) for name in after if name in before]
    pairs = [(name, a, b) for name, a, b in shared if a is not None and b is not None]
    if not pairs:
        return None
    changed = sorted((b - a, name, a, b) for name, a, b in pairs if a != b)
    changed.sort(key=lambda one: (one[0] > 0, -abs(one[0])))
    handles = RunRecord(store, row["id"]).read_handles()
    return {
        "lost": sum(difference < 0 for difference, *_ in changed),
        "won": sum(difference > 0 for difference, *_ in changed),
        "rows": len(pairs),
        "noise": noise_band([b - a for _, a, b in pairs]),
        "first": [
            {"example": name, "handle": handles.get(name, name), "before": a, "after": b, "won": b > a}
            for _, name, a, b in changed[:ROWS]
        ],
    }


def list_candidates(
    tree: Sequence[tuple[int, Mapping[str, Any]]], report: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Return the candidates, each after its parent: depth, hash, val, its optimizer, and whether it is the winner or
    the baseline."""
    winner = winner_of(report)
    known = (report or {}).get("baseline", {}).get("workflow")
    baseline = known or (tree[0][1]["hash"] if tree else None)
    return [
        {
            "depth": min(depth, 12),
            "hash": one["hash"],
            "val": one["val"],
            "optimizer": one["optimizer"] or "",
            "note": one["note"] or "",
            "role": "winner" if one["hash"] == winner else "baseline" if one["hash"] == baseline else "",
        }
        for depth, one in tree
    ]


# While it runs


def live_part(site: Site, store: Store, request: Request) -> Response:
    """Return the part of the page that changes while a run runs. It is requested each second."""
    row = find_run(store, request)
    status = status_of(store, row)
    values = {"run": {"run": row["run"]}, "kind": kind_of(row), "status": status}
    return site.render(request, "live_part.html", **values, **read_progress(store, row, status))


def read_progress(store: Store, row: Any, status: str) -> dict[str, Any]:
    """Return calls and seconds against the budget, the best so far, candidates by score, and events."""
    record, report = RunRecord(store, row["id"]), read_report(row)
    budget, calls, journal = _budget(row), record.count_calls(), Journal(store, row["id"])
    _, prompt, completion, usd = journal.sum_calls() if calls <= SUMMED else (0, 0, 0, None)
    found = candidates(store, row["id"])
    ordered = read_orders(store, row["id"])
    budget = {what: ordered["raised"].get(what, ceiling) for what, ceiling in budget.items()}
    paused = ordered["paused"] and status == "running"
    best = max((one for one in found if one["val"] is not None), key=lambda one: one["val"], default=None)
    return {
        "report": report,
        "budget": budget,
        "calls": calls,
        "usd": usd,
        "tokens": prompt + completion,
        "failed": journal.count_failures(),
        "scored": Evaluations(store, row["id"]).count_rows(),
        "seconds": row["seconds"],
        "best": best,
        "first": found[0] if found else None,
        **ordered,
        "doing": _doing(found, Evaluations(store, row["id"]), record, "paused" if paused else status),
        "tree": list_candidates(lineage(found), report)[:CANDIDATES],
        "candidates": len(found),
        "events": [_told(one) for one in record.read_last_events(EVENTS) if one["kind"] not in ELSEWHERE],
    }


def _budget(row: Any) -> dict[str, float | None]:
    """Return the ceilings of a run, without running its code."""
    try:
        value = read_stored_source(row)[2].value
    except WorkbenchError:
        value = None
    given = value.get("budget") if isinstance(value, dict) else None
    told = given if isinstance(given, dict) else {}
    found = {name: told.get(name) for name in ("calls", "minutes", "usd", "tokens")}
    return {name: value if isinstance(value, int | float) else None for name, value in found.items()}


def _doing(found: Sequence[Mapping[str, Any]], evaluations: Evaluations, record: RunRecord, status: str) -> str:
    if status != "running":
        return {"killed": "its process has ended"}.get(status, status)
    if any(one["split"] == "test" for one in evaluations.list_all()) or record.read_events("testing"):
        return "sealed test"
    open_ = [one["hash"][:8] for one in found if one["val"] is None]
    return f"evaluating candidate {open_[-1]}" if open_ else "proposing" if found else "starting"


def _told(event: Mapping[str, Any]) -> dict[str, str]:
    """Describe an event in a line."""
    data, kind = event["data"], event["kind"]
    if kind == "evaluated":
        text = f"candidate {str(data.get('candidate'))[:8]} evaluated, {data.get('calls')} calls paid"
    elif kind == "rate_limited":
        text = f"rate limited: {data.get('before')} -> {data.get('after')} at once ({data.get('lm')})"
    elif kind in ("optimizer_told", "budget_spent"):
        text = f"{data.get('optimizer', '')} {data.get('message', '')}".strip()
    elif kind == "testing":
        text = f"sealed test of {data.get('sides')} workflows" if data.get("changed") else "sealed test of the baseline"
    elif kind == "run_started":
        text = "started" + "".join(f"; warning: {warning}" for warning in data.get("warnings") or ())
    else:
        said = json.dumps(data, ensure_ascii=False, default=str)
        text = kind.replace("_", " ") + (f" {said[:300]}" if data else "")
    return {"at": str(event["at"])[11:19], "text": text}


# Evaluations


def _evaluated(store: Store, row: Any, report: dict[str, Any]) -> dict[str, Any]:
    return {
        "report": report,
        "lines": [line for line in stored_report(report).lines() if line],
        "roles": {role: _price(spent) for role, spent in report["spent"].get("by_role", {}).items()},
    }

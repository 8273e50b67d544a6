"""A row: its inputs, all its scores, and the trace as a timeline, with the deciding step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from workbench.evaluation import add_details, describe_diagnosis, read_rows
from workbench.run import winner_of
from workbench.store import Store, kind_of, read_report
from workbench_view.server.rows import default_candidate
from workbench_view.server.site import NotFound, Site, find_run
from workbench_view.server.stored import read_inputs


def row_page(site: Site, store: Store, request: Request) -> Response:
    row = find_run(store, request)
    report, example = read_report(row), request.query_params.get("row", "")
    candidate = request.query_params.get("candidate") or default_candidate(store, row, report)
    split = request.query_params.get("split") or None
    found = read_rows(store, row, report, candidate, split=split, examples=[example]) if candidate else []
    if candidate is None or not found:
        raise NotFound(f"Run {row['run']} has no result of a row '{example[:80]}'.")
    split = split or found[-1]["split"]
    found = [one for one in found if one["split"] == split]
    add_details(store, row, found, inputs=read_inputs(site, store, row))
    baseline = (report or {}).get("baseline", {}).get("workflow") if kind_of(row) == "optimize" else None
    return site.render(
        request,
        "row.html",
        run={"run": row["run"], "name": row["name"]},
        kind=kind_of(row),
        example=example,
        handle=found[0]["handle"],
        candidate=candidate,
        split=split,
        winner=winner_of(report) if kind_of(row) == "optimize" else None,
        baseline=baseline,
        inputs=found[0]["inputs"] or {},
        further=found[0]["further"],
        times=[_described(one) for one in found],
        others=_others(store, row, report, (baseline, winner_of(report)), candidate, split, example),
    )


def _described(one: Mapping[str, Any]) -> dict[str, Any]:
    spans = one["spans"] or ()
    return {
        **one,
        "timeline": draw_timeline(spans),
        "findings": [describe_diagnosis(found) for found in one["diagnoses"]],
        "deciding": mark_deciding(spans, one["diagnoses"]),
    }


def _others(
    store: Store,
    row: Any,
    report: Mapping[str, Any] | None,
    asked: Sequence[str | None],
    candidate: str,
    split: str,
    example: str,
) -> list[dict[str, Any]]:
    """Return the results of baseline and winner on the same row."""
    made: list[dict[str, Any]] = []
    for name, hash_ in zip(("baseline", "winner"), asked, strict=True):
        if hash_ and hash_ != candidate:
            rows = read_rows(store, row, report, hash_, split=split, examples=[example])
            made += [
                {"name": name, "hash": hash_, "score": r["score"], "prediction": r["prediction"]} for r in rows[:1]
            ]
    return made


def draw_timeline(spans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the place of each step on a time line. A trace stores the duration of a step, not its start, so each step
    begins after the one before it."""
    total = sum(float(span.get("seconds") or 0) for span in spans) or 1.0
    bars: list[dict[str, float]] = []
    at = 0.0
    for span in spans:
        seconds = float(span.get("seconds") or 0)
        bars.append({"x": round(100 * at / total, 2), "width": round(max(0.6, 100 * seconds / total), 2)})
        at += seconds
    return {"bars": bars, "seconds": at}


def mark_deciding(spans: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the positions of the spans that diagnoses name.

    A step is a model call, or a node without any, as in `workbench agent attribute`. If the count leads to another
    node, all spans of the named node are returned.
    """
    steps = [place for place, span in enumerate(spans) for _ in (span.get("calls") or (None,))]
    marked = set[int]()
    for one in findings:
        if one["step"] is None:
            continue
        same = [place for place, span in enumerate(spans) if one["node"] in (span["node"], span.get("agent"))]
        place = steps[one["step"]] if 0 <= one["step"] < len(steps) else None
        marked |= {place} if place is not None and place in same else set(same)
    return marked

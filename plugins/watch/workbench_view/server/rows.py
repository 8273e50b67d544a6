"""The rows of a candidate, filtered by failure, changed result, or node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from workbench.evaluation import read_rows
from workbench.run import candidate_workflow, winner_of
from workbench.store import Evaluations, Journal, Store, kind_of, list_attributions, read_report
from workbench_view.server.site import NotFound, Site, find_run, url, whole_number
from workbench_view.server.stored import mean_scores, read_inputs, shorten

#: Rows per page.
PAGE = 50
_ASKED = ("candidate", "split", "side", "failure", "node", "role", "decided", "text")
#: Filters of rows by their difference from the baseline.
SIDES = ("won", "lost", "changed", "same")


def rows_page(site: Site, store: Store, request: Request) -> Response:
    row = find_run(store, request)
    report, asked = read_report(row), {n: request.query_params.get(n, "").strip() for n in _ASKED}
    candidate = asked["candidate"] or default_candidate(store, row, report)
    done = [e for e in Evaluations(store, row["id"]).list_all() if e["candidate"] == candidate]
    splits = list(dict.fromkeys(e["split"] for e in done))
    if candidate is None or not splits:
        what = f"candidate '{candidate[:80]}'" if candidate else "run"
        raise NotFound(f"No rows are stored of this {what}.")
    split = asked["split"] or next((s for s in ("test", "val") if s in splits), splits[0])
    decided = read_decided(store, row["run"], candidate)
    scores, before = (
        _scores(store, row, candidate, split, asked),
        _baseline_scores(store, row, report, candidate, split),
    )
    found = [name for name, one in scores.items() if _matches(name, one, before, decided, asked)]
    inputs = read_inputs(site, store, row) if asked["text"] else {}
    if asked["text"]:
        found = _with_text(store, row, report, candidate, split, found, inputs, asked["text"].lower())
    page, pages = whole_number(request, "page"), max(1, -(-len(found) // PAGE))
    shown = found[(min(page, pages) - 1) * PAGE : min(page, pages) * PAGE]
    workflow = candidate_workflow(store, row["id"], candidate)
    chosen = {**asked, "candidate": candidate, "split": split}
    here = f"/runs/{row['run']}/rows"
    return site.render(
        request,
        "rows.html",
        run={"run": row["run"], "name": row["name"]},
        asked=chosen,
        rows=_described(site, store, row, report, candidate, split, shown, before, decided),
        found=len(found),
        all=len(scores),
        page=min(page, pages),
        pages=pages,
        turn=lambda number: url(here, **chosen, page=number),
        splits=splits,
        sides=SIDES if before else (),
        failures=sorted({one["failure"] for one in scores.values() if one["failure"]}),
        nodes=sorted(workflow.tree.get("nodes", {})) if workflow else (),
        roles=sorted(Journal(store, row["id"]).count_by_role()) if kind_of(row) == "optimize" else (),
        deciders=sorted({node for nodes in decided.values() for node in nodes}),
        names=list_candidate_names(store, row, report),
    )


def default_candidate(store: Store, row: Any, report: Mapping[str, Any] | None) -> str | None:
    """Return the winner; during the run, the newest candidate with rows."""
    done = Evaluations(store, row["id"]).list_all()
    return winner_of(report) or (done[-1]["candidate"] if done else None)


def list_candidate_names(store: Store, row: Any, report: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return (hash, label) of the candidates with rows."""
    known = dict.fromkeys(e["candidate"] for e in Evaluations(store, row["id"]).list_all())
    named: dict[str | None, str] = {}
    if kind_of(row) == "optimize":
        named = {(report or {}).get("baseline", {}).get("workflow"): "baseline", winner_of(report): "winner"}
    return [(hash_, f"{hash_[:8]} {named.get(hash_, '')}".strip()) for hash_ in known][:500]


def _scores(store: Store, row: Any, candidate: str, split: str, asked: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the mean score and the first failure of each row, only of rows whose trace has the node and the role."""
    evaluations = Evaluations(store, row["id"])
    found: dict[str, dict[str, Any]] = {}
    for one in evaluations.list_scores(candidate, split):
        kept = found.setdefault(one["example"], {"scores": [], "failure": None, "score": None})
        kept["scores"] += [] if one["score"] is None else [one["score"]]
        kept["failure"] = kept["failure"] or one["failure"]
    for kept in found.values():
        kept["score"] = sum(kept["scores"]) / len(kept["scores"]) if kept["scores"] else None
    for key in (name for name in ("node", "role") if asked[name]):
        part = f"{json.dumps(key)}:{json.dumps(asked[key], ensure_ascii=False)}"
        there = {one["example"] for one in evaluations.list_scores(candidate, split, part=part)}
        found = {name: one for name, one in found.items() if name in there}
    return found


def _baseline_scores(
    store: Store, row: Any, report: Mapping[str, Any] | None, candidate: str, split: str
) -> dict[str, float | None]:
    baseline = (report or {}).get("baseline", {}).get("workflow") if kind_of(row) == "optimize" else None
    return mean_scores(store, row["id"], baseline, split) if baseline and baseline != candidate else {}


def _matches(
    name: str,
    one: Mapping[str, Any],
    before: Mapping[str, float | None],
    decided: Mapping[str, Sequence[str]],
    asked: Mapping[str, str],
) -> bool:
    if asked["failure"] == "any" and not one["failure"] and one["score"] == 1:
        return False
    if asked["failure"] not in ("", "any", one["failure"]):
        return False
    if asked["decided"] and asked["decided"] not in decided.get(name, ()):
        return False
    return not asked["side"] or asked["side"] in side_of(before.get(name), one["score"])


def side_of(before: float | None, after: float | None) -> tuple[str, ...]:
    """Return whether a row was won or lost against the baseline."""
    if before is None or after is None:
        return ()
    return ("same",) if before == after else ("changed", "won" if after > before else "lost")


def read_decided(store: Store, run: str, candidate: str) -> dict[str, list[str]]:
    """Return by row the nodes that decided its failure, according to runs of `workbench agent attribute`."""
    found: dict[str, list[str]] = {}
    for row in list_attributions(store):
        report = read_report(row) or {}
        if report.get("kind") == "attribute" and run in report["examined"]:
            for one in report["rows"]:
                if one["candidate"] == candidate and one["node"]:
                    found.setdefault(one["row"], []).append(one["node"])
    return found


def _with_text(
    store: Store,
    row: Any,
    report: Mapping[str, Any] | None,
    candidate: str,
    split: str,
    names: Sequence[str],
    inputs: Mapping[str, Any],
    text: str,
) -> list[str]:
    """Return the rows whose id, inputs, answer or message contains a text."""
    said: dict[str, str] = {name: f"{name} {json.dumps(inputs.get(name), ensure_ascii=False)}" for name in names}
    for one in read_rows(store, row, report, candidate, split=split, parsed=("cost",)):
        if one["example"] in said:
            parts = (one["handle"], one["fields"], one["prediction"], one["message"], one["feedback"])
            said[one["example"]] += " ".join(str(part) for part in parts if part)
    return [name for name in names if text in said[name].lower()]


def _described(
    site: Site,
    store: Store,
    row: Any,
    report: Mapping[str, Any] | None,
    candidate: str,
    split: str,
    names: Sequence[str],
    before: Mapping[str, float | None],
    decided: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """Describe rows for a list, in order."""
    inputs, made = read_inputs(site, store, row), dict[str, dict[str, Any]]()
    parts = ("cost", "prediction", "fields")
    for one in read_rows(store, row, report, candidate, split=split, examples=names, parsed=parts):
        if one["example"] in made:  # another repeat of the row
            made[one["example"]]["repeats"].append(one["score"])
            continue
        given = one["fields"] or inputs.get(one["example"]) or {}
        made[one["example"]] = {
            "example": one["example"],
            "handle": one["handle"],
            "repeats": [one["score"]],
            "before": before.get(one["example"]),
            "failure": one["failure"],
            "said": shorten(given),
            "answer": shorten(one["prediction"] or {}),
            "cost": one["cost"] or {},
            "decided": decided.get(one["example"], ()),
        }
    for name, one in made.items():
        scores = [score for score in one["repeats"] if score is not None]
        one["score"] = sum(scores) / len(scores) if scores else None
        one["side"] = side_of(before.get(name), one["score"])
    return [made[name] for name in names if name in made]

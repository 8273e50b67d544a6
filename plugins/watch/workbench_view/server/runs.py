"""The runs of the database, newest first; tags and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from workbench.run import status_of
from workbench.store import (
    RunRecord,
    Store,
    find_exact_run,
    find_runs,
    kind_of,
    list_run_heads,
    read_report,
    tags_of,
    told_apart,
)
from workbench_view.page import format_score
from workbench_view.server.site import NotFound, Refused, Site, url, whole_number

#: Runs per page, and maximum characters of a note.
PAGE, MAX_NOTE = 50, 2000


def runs_page(site: Site, store: Store, request: Request) -> Response:
    asked = {name: request.query_params.get(name, "").strip() for name in ("text", "kind", "status", "tag")}
    heads = list_run_heads(store)
    found = [head for head in heads if _matches(head, asked)]
    if asked["status"] in ("running", "killed"):  # a lock tells them apart, so only candidates are checked
        found = [head for head in found if status_of(store, head) == asked["status"]]
    page, pages = whole_number(request, "page"), max(1, -(-len(found) // PAGE))
    shown = found[(min(page, pages) - 1) * PAGE : min(page, pages) * PAGE]
    return site.render(
        request,
        "runs.html",
        runs=[describe_run(store, row) for row in find_runs(store, [head["id"] for head in shown])],
        asked=asked,
        found=len(found),
        all=len(heads),
        page=min(page, pages),
        pages=pages,
        turn=lambda number: url("/", **asked, page=number),
        kinds=sorted({kind_of(head) for head in heads}),
        statuses=("running", "finished", "budget", "interrupted", "failed", "killed", "ready"),
        tags=sorted({tag for head in heads for tag in tags_of(head)}),
        database=str(site.database),
    )


def _matches(head: Any, asked: Mapping[str, str]) -> bool:
    if asked["kind"] and kind_of(head) != asked["kind"]:
        return False
    status = "running" if asked["status"] == "killed" else asked["status"]
    if status and head["status"] != status:
        return False
    tags = tags_of(head)
    if asked["tag"] and asked["tag"] not in tags:
        return False
    said = " ".join([head["run"], head["name"] or "", head["note"] or "", head["file"] or "", *tags]).lower()
    return all(word in said for word in asked["text"].lower().split())


def describe_run(store: Store, row: Any) -> dict[str, Any]:
    """Describe a run for a list."""
    report, kind = read_report(row) or {}, kind_of(row)
    return {
        "run": row["run"],
        "name": row["name"] or "",
        "kind": kind,
        "status": status_of(store, row),
        "started": (row["started"] or "").replace("T", " ").rstrip("Z"),
        "seconds": row["seconds"],
        "tags": tags_of(row),
        "note": row["note"] or "",
        "result": _result(kind, row["status"], report),
        "apart": report.get("label") or told_apart(row),
        "usd": report.get("spent", {}).get("usd"),
        "calls": report.get("spent", {}).get("calls"),
    }


def _result(kind: str, status: str, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return score: the figure in the list; words: the text next to it; shown: whether a gain is proved."""
    if kind == "eval":
        if not report.get("n"):
            return {"score": "–", "words": "", "shown": False}
        low, high = report["ci95"]
        words = f"{report['split']} [{low:.3f}, {high:.3f}] n={report['n']}"
        return {"score": format_score(report["score"]), "words": words, "shown": False}
    score = report.get("best", {}).get("test", {}).get("score")
    if score is None or status not in ("finished", "budget"):
        return {"score": "–", "words": "", "shown": False}
    gain = report["gain"]
    words = f"gain {gain['diff']:+.3f}{'' if gain['shown'] else ', not shown'}"
    return {"score": format_score(score), "words": words, "shown": gain["shown"]}


def read_tags(text: str) -> list[str]:
    """Parse tags from a form, separated by spaces or commas. Raises Refused."""
    found = text.replace(",", " ").split()
    for tag in found:
        if not all(c.isalnum() or c in "._-" for c in tag) or len(tag) > 60:
            raise Refused(f"A tag is made of letters, digits, and . _ -; '{tag[:60]}' is not.", 422)
        if tag == "last":
            raise Refused("'last' means the newest run; choose another tag.", 422)
    return sorted(set(found))


def tag_run(site: Site, request: Request, form: Mapping[str, str]) -> str:
    """Replace the tags and the note of a run."""
    name = str(request.path_params["run"])
    tags, note = read_tags(form.get("tags", "")), form.get("note", "").strip()[:MAX_NOTE]
    with Store(site.database, create=False) as store:
        row = find_exact_run(store, name)
        if row is None:
            raise NotFound(f"There is no run '{name[:80]}' in this database.")
        RunRecord(store, row["id"]).tag(tags, note or None)
    return url(f"/runs/{row['run']}") + "#notes"


def list_names(store: Store) -> Sequence[str]:
    """Return the names of the newest runs, for a choice."""
    return [head["run"] for head in list_run_heads(store)[:50]]

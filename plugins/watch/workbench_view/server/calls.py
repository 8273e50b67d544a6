"""The model calls of a run: request, answer and cost of each."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from workbench.store import Journal, RunRecord, Store
from workbench_view.server.site import NotFound, Site, find_run, url

#: Calls per page.
PAGE = 100


def calls_page(site: Site, store: Store, request: Request) -> Response:
    row = find_run(store, request)
    role, after = request.query_params.get("role", ""), request.query_params.get("after", "")
    found = RunRecord(store, row["id"]).list_calls(role, after, PAGE + 1)
    last = found[PAGE - 1]["key"] if len(found) > PAGE else None
    return site.render(
        request,
        "calls.html",
        run={"run": row["run"], "name": row["name"]},
        role=role,
        roles=Journal(store, row["id"]).count_by_role(),
        calls=found[:PAGE],
        after=after,
        further=url(f"/runs/{row['run']}/calls", role=role, after=last) if last else None,
    )


def call_page(site: Site, store: Store, request: Request) -> Response:
    row, key = find_run(store, request), request.query_params.get("key", "")
    call = Journal(store, row["id"]).read_call(key)
    if call is None:
        raise NotFound(f"Run {row['run']} has no call '{key[:80]}'.")
    settings = {k: v for k, v in call["request"].items() if k != "messages" and v not in (None, [], {})}
    return site.render(
        request,
        "call.html",
        run={"run": row["run"], "name": row["name"]},
        call=call,
        messages=call["request"]["messages"],
        settings=settings,
    )

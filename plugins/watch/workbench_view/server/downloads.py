"""The report of a run in the formats of `workbench report`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from workbench.store import Store, kind_of, read_report
from workbench_view.exports import WRITERS
from workbench_view.facts import read_facts
from workbench_view.server.site import NotFound, Site, find_run

_TYPES = {".html": "text/html", ".md": "text/markdown", ".json": "application/json", ".csv": "text/csv"}


def report_file(site: Site, store: Store, request: Request) -> Response:
    """Return the file as a download. It has inline styles, so the browser must not show it here."""
    row, form = find_run(store, request), f".{request.path_params['form']}"
    if form not in WRITERS or kind_of(row) != "optimize" or read_report(row) is None:
        raise NotFound(f"There is no such report of run {row['run']}.")
    text = WRITERS[form][0](read_facts(store, row["run"]))
    kept = {"content-disposition": f'attachment; filename="{row["run"]}{form}"'}
    return Response(text.encode("utf-8", "replace"), headers=kept, media_type=_TYPES[form])

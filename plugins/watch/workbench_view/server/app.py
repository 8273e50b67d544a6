"""The application: the page at each path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from workbench_view.server.access import Access, Guard
from workbench_view.server.branching import branch_candidate
from workbench_view.server.calls import call_page, calls_page
from workbench_view.server.candidates import candidate_page
from workbench_view.server.catalogue import plugins_page
from workbench_view.server.comparison import compare_page, matrix_page
from workbench_view.server.data import data_page
from workbench_view.server.downloads import report_file
from workbench_view.server.grid import grid_page
from workbench_view.server.labelling import label_rows, label_rows_page, label_run, label_run_page
from workbench_view.server.row import row_page
from workbench_view.server.rows import rows_page
from workbench_view.server.run import live_part, picture, run_page
from workbench_view.server.runs import runs_page, tag_run
from workbench_view.server.site import Change, Page, Site
from workbench_view.server.starting import start_run
from workbench_view.server.steering import steer_run

#: Pages that only read, by path.
PAGES: dict[str, Page] = {
    "/": runs_page,
    "/runs/{run}": run_page,
    "/runs/{run}/live": live_part,
    "/runs/{run}/pictures/{name}.svg": picture,
    "/runs/{run}/report.{form}": report_file,
    "/runs/{run}/candidates/{hash}": candidate_page,
    "/runs/{run}/rows": rows_page,
    "/runs/{run}/row": row_page,
    "/runs/{run}/calls": calls_page,
    "/runs/{run}/call": call_page,
    "/runs/{run}/data": data_page,
    "/runs/{run}/matrix": matrix_page,
    "/runs/{run}/label": label_run_page,
    "/label": label_rows_page,
    "/compare": compare_page,
    "/grid": grid_page,
    "/plugins": plugins_page,
}
#: Changes, by the path of their form.
CHANGES: dict[str, Change] = {
    "/runs/{run}/tags": tag_run,
    "/runs/{run}/steer": steer_run,
    "/runs/{run}/branch": branch_candidate,
    "/runs/{run}/start": start_run,
    "/runs/{run}/label": label_run,
    "/label": label_rows,
}

#: The files that a page may load. No path of a request leads to any other file.
_ASSETS = {"style.css": "text/css", "view.css": "text/css", "view.js": "text/javascript", "icon.svg": "image/svg+xml"}
_FOLDER = Path(__file__).parent.parent / "assets"


def make_app(site: Site, access: Access) -> ASGIApp:
    """Return the application over a database, behind its guard."""
    routes = [Route(path, site.page(make), methods=["GET"]) for path, make in PAGES.items()]
    routes += [Route(path, site.change(make), methods=["POST"]) for path, make in CHANGES.items()]
    routes += [Route(f"/assets/{name}", _asset(name, kind), methods=["GET"]) for name, kind in _ASSETS.items()]

    async def refuse(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return site.error(request, status, "There is no such page." if status == 404 else str(error))

    app = Starlette(routes=routes, exception_handlers={HTTPException: refuse})
    app.router.redirect_slashes = False
    return Guard(app, access)


def _asset(name: str, kind: str) -> Callable[[Request], Response]:
    content = (_FOLDER / name).read_bytes()

    def answer(request: Request) -> Response:
        return Response(content, headers={"cache-control": "no-cache"}, media_type=kind)

    return answer

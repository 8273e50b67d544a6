"""Answers side by side: a line for each row, a column for each run or candidate."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from workbench.errors import StoreError
from workbench.evaluation import Side, read_rows, read_side
from workbench.store import Store, find_exact_run, read_report
from workbench_view.server.runs import list_names
from workbench_view.server.site import Site, url, whole_number
from workbench_view.server.stored import read_inputs, shorten

#: Rows per page, and the maximum number of columns.
PAGE, COLUMNS = 50, 8
#: Filters of rows by what differs between the columns.
FILTERS = ("answers", "scores", "all")


def grid_page(site: Site, store: Store, request: Request) -> Response:
    """Show the answers of up to COLUMNS sides on the rows that all of them have."""
    names = [name for one in request.query_params.getlist("side") if (name := one.strip())][:COLUMNS]
    only = request.query_params.get("only", "")
    only = only if only in FILTERS else FILTERS[0]
    shown: dict[str, Any] = {"names": list_names(store), "asked": names, "only": only, "filters": FILTERS}
    shown |= {"sides": None, "error": None}
    status = 200
    if len(names) > 1:
        try:
            shown |= _grid(site, store, names, only, whole_number(request, "page"))
        except StoreError as error:
            shown["error"], status = str(error), 404
    return site.render(request, "grid.html", status, **shown)


def grid_url(names: list[str], only: str = "", page: int | None = None) -> str:
    """Return the address of the grid of some sides."""
    return url("/grid", side=names[:COLUMNS], only=only, page=page)


def _grid(site: Site, store: Store, names: list[str], only: str, page: int) -> dict[str, Any]:
    sides = [read_side(store, name) for name in names]
    answers = [_answers(store, side) for side in sides]
    shared = [key for key in sides[0].rows if all(key in side.rows for side in sides)]
    lines = list[dict[str, Any]]()
    for key in shared:
        rows = [side.rows[key] for side in sides]
        said = [answers[place].get(row.example, {}) for place, row in enumerate(rows)]
        cells = [{"row": row.example, "score": row.score, **one} for row, one in zip(rows, said, strict=True)]
        differ = {
            "all": True,
            "scores": len({row.score for row in rows}) > 1,
            "answers": any(one["answer"] != cells[0]["answer"] for one in cells if "answer" in one),
        }
        if differ[only]:
            lines.append({"row": rows[0].example, "handle": rows[0].handle, "cells": cells})
    pages = max(1, -(-len(lines) // PAGE))
    page = min(page, pages)
    inputs = read_inputs(site, store, find_exact_run(store, sides[0].run))
    listed = lines[(page - 1) * PAGE : page * PAGE]
    for line in listed:
        line["said"] = shorten(line["cells"][0].get("fields") or inputs.get(line["row"]) or {})
    return {
        "sides": sides,
        "lines": listed,
        "shared": len(shared),
        "found": len(lines),
        "page": page,
        "pages": pages,
        "turn": lambda number: grid_url(names, only, number),
    }


def _answers(store: Store, side: Side) -> dict[str, dict[str, Any]]:
    """Return the first answer to each row of a side, its failure, and the fields of the row if they are stored."""
    row = find_exact_run(store, side.run)
    assert row is not None  # its rows were just read
    parts, found = ("cost", "prediction", "fields"), dict[str, dict[str, Any]]()
    for one in read_rows(store, row, read_report(row), side.workflow, split=side.split, parsed=parts):
        answer = {"answer": shorten(one["prediction"] or {}), "failure": one["failure"], "fields": one["fields"]}
        found.setdefault(one["example"], answer)
    return found

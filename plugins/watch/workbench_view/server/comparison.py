"""Compares any two runs, candidates or evaluations row by row; and shows the cells of a matrix."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from workbench.errors import StoreError
from workbench.evaluation import Difference, Side, compare_sides, describe_choice, read_side
from workbench.run import candidate_workflow
from workbench.store import Store, find_exact_run, find_runs, kind_of, list_run_heads, read_report
from workbench_view.server.grid import grid_url
from workbench_view.server.runs import list_names
from workbench_view.server.site import NotFound, Site, find_run
from workbench_view.server.stored import read_inputs, shorten
from workbench_view.text_diff import list_changes

#: Maximum changed rows of each kind in a comparison, and evaluations to search for cells.
ROWS, SEARCHED = 100, 400


def compare_page(site: Site, store: Store, request: Request) -> Response:
    asked = [request.query_params.get(name, "").strip() for name in ("a", "b")]
    shown: dict[str, Any] = {"a": asked[0], "b": asked[1], "names": list_names(store), "error": None, "sides": None}
    status = 200
    if all(asked):
        try:
            shown |= _compared(site, store, *asked)
        except StoreError as error:
            shown["error"], status = str(error), 404
    return site.render(request, "compare.html", status, **shown)


def _compared(site: Site, store: Store, a: str, b: str) -> dict[str, Any]:
    sides = [read_side(store, a), read_side(store, b)]
    found = compare_sides(sides)[0]
    first, second = ({row.example: row.score for row in side.rows.values()} for side in sides)
    workflows = [candidate_workflow(store, _id(store, side.run), side.workflow) for side in sides]
    before, after = workflows
    changes = before.diff(after) if before is not None and after is not None else []
    inputs = read_inputs(site, store, find_exact_run(store, sides[1].run))
    listed = [*found.worse[:ROWS], *found.better[:ROWS]]
    return {
        "sides": sides,
        "found": found,
        "verdict": describe_difference(found, sides),
        "rows": [
            (word, [(example, first.get(example), second.get(example)) for example in names[:ROWS]], len(names))
            for word, names in (("lost", found.worse), ("won", found.better))
        ],
        "said": {name: shorten(inputs.get(name) or {}) for name in listed},
        "changes": list_changes(changes),
        "grid": grid_url([a, b]),
    }


def _id(store: Store, run: str) -> int:
    row = find_exact_run(store, run)
    assert row is not None  # its rows were just read
    return row["id"]


def describe_difference(found: Difference, sides: list[Side]) -> str:
    """Return the verdict in a sentence."""
    proof = found.proof
    figures = f"{proof.diff_text}, p = {found.p:.2g} ({proof.test})"
    word = {"gain": "The second is better", "loss": "The second is worse", "": "No difference is shown"}[found.shown]
    word = word if found.evidence else "Chosen on these rows: no evidence"
    more = f" {describe_choice(found)[:1].upper()}{describe_choice(found)[1:]}." if found.chosen else ""
    return f"{word}: {figures}, on {proof.n_rows} rows that both have.{more}"


def matrix_page(site: Site, store: Store, request: Request) -> Response:
    """Show the evaluations of the same `workbench eval --matrix`: those with the same name, rows and axes."""
    row = find_run(store, request)
    report = read_report(row)
    if kind_of(row) != "eval" or report is None or not report["label"]:
        raise NotFound(
            f"Run {row['run']} is not a cell of a matrix; `workbench eval FILE --matrix ADDRESS=A,B` makes one."
        )
    axes = list(_axes(report["label"]))
    heads = [head for head in list_run_heads(store, ("eval",)) if head["name"] == row["name"]]
    near = [head["id"] for head in heads if head["file"] == row["file"]][:SEARCHED]
    cells: dict[tuple[str, ...], dict[str, Any]] = {}
    for other in find_runs(store, near):
        told = read_report(other)
        if told is None or list(_axes(told["label"])) != axes or other["data_hash"] != row["data_hash"]:
            continue
        if told["split"] == report["split"]:  # the newest of each is shown
            cells.setdefault(tuple(_axes(told["label"]).values()), {**told, "run": other["run"]})
    rows = list(dict.fromkeys(key[0] for key in reversed(cells)))
    columns = list(dict.fromkeys(key[1:] for key in reversed(cells)))
    return site.render(
        request,
        "matrix.html",
        run={"run": row["run"], "name": row["name"]},
        axes=axes,
        rows=rows,
        columns=columns,
        cells=cells,
        grid=grid_url([cell["run"] for cell in reversed(cells.values())]),
        best=max((one["score"] for one in cells.values()), default=None),
        split=report["split"],
    )


def _axes(label: str) -> dict[str, str]:
    """Parse a label such as `lm=a, nodes.x.samples=3` to addresses with values."""
    found: dict[str, str] = {}
    last = ""
    for part in label.split(", "):
        address, equals, value = part.partition("=")
        if equals and address.replace(".", "").replace("_", "").replace("-", "").isalnum():
            last, found[address] = address, value
        elif last:  # a comma of the value itself
            found[last] += f", {part}"
    return found

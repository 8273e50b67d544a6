"""The page for labelling: one answer at a time, blind, for a run or a file of rows; and the report of the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from workbench.errors import SpecError, StoreError
from workbench.store import Store
from workbench_kit.labels import (
    Answer,
    Item,
    Label,
    RunAnswers,
    append_label,
    calibrate,
    compare_labellers,
    describe_labellers,
    file_items,
    order_items,
    read_labels,
    run_answers,
)
from workbench_view.server.site import NotFound, Refused, Site, find_run, url

#: Maximum characters of a labeller's name, and of a better answer or comment.
MAX_NAME, MAX_TEXT = 60, 20_000


@dataclass(frozen=True)
class _Labelled:
    """The answers to label on a page, in order. answers: of a run, with the judge's scores. named: the file that its
    workflow reads. judged: whether a judge gave the scores."""

    where: str
    title: str
    trail: Mapping[str, Any] | None
    items: Sequence[Item]
    place: Path
    answers: Sequence[Answer] = ()
    named: Path | None = None
    judged: bool = False


def label_run_page(site: Site, store: Store, request: Request) -> Response:
    row = find_run(store, request)
    try:
        found = _of_run(site, store, row)
    except NotFound as error:
        return site.render(request, "no_answers.html", run={"run": row["run"], "name": row["name"]}, message=str(error))
    return _page(site, request, found)


def label_rows_page(site: Site, store: Store, request: Request) -> Response:
    return _page(site, request, _of_rows(site))


def label_run(site: Site, request: Request, form: Mapping[str, str]) -> str:
    """Write the label in a form; returns the address of the next answer."""
    with Store(site.database, create=False) as store:
        return _write(site, _of_run(site, store, find_run(store, request)), form)


def label_rows(site: Site, request: Request, form: Mapping[str, str]) -> str:
    return _write(site, _of_rows(site), form)


def _of_run(site: Site, store: Store, row: Any) -> _Labelled:
    key = ("answers", row["run"], row["checksum"], row["finished"], row["status"])
    try:
        found, items = site.remember(key, lambda: _in_order(run_answers(store, row["run"])))
    except (SpecError, StoreError) as error:
        raise NotFound(f"It has nothing to label: {error}.") from None
    trail = {"run": row["run"], "name": row["name"]}
    title = f"Label the answers of run {row['run']}"
    where = f"/runs/{row['run']}/label"
    place = site.labels.run_labels
    return _Labelled(where, title, trail, items, place, found.answers, found.labels, found.judged)


def _in_order(found: RunAnswers) -> tuple[RunAnswers, list[Item]]:
    return found, order_items([(one.cluster, one.item) for one in found.answers])


def _of_rows(site: Site) -> _Labelled:
    rows, place = site.labels.rows, site.labels.row_labels
    if rows is None or place is None:
        raise NotFound("No file of rows is labelled here; start the page with: workbench view --answers FILE.")
    items = site.remember(("rows", rows.stat().st_mtime_ns), lambda: order_items(file_items(rows, site.labels.field)))
    return _Labelled("/label", f"Label the rows of {rows.name}", None, items, place)


def _page(site: Site, request: Request, found: _Labelled) -> Response:
    """Ask who labels, then show the next answer, or the report of the labels."""
    name = _name(request.query_params.get("by", ""))
    labels = read_labels(found.place) if found.place.exists() else []
    shown: dict[str, Any] = {
        "found": found,
        "by": name,
        "turn": lambda **more: url(found.where, by=name, **more),
        "elsewhere": found.named if found.named and found.named.resolve() != found.place.resolve() else None,
    }
    if request.query_params.get("report") == "1":
        return site.render(request, "labels.html", **shown, lines=_report(found, labels))
    items = found.items
    given = {(one.row, one.answer): one for one in labels if one.by == name}
    left = [item for item in items if (item.row, item.key) not in given]
    asked = request.query_params.get("row", ""), request.query_params.get("answer", "")
    item = next((one for one in items if (one.row, one.key) == asked), left[0] if left and not any(asked) else None)
    if any(asked) and item is None:
        raise NotFound("There is no such answer.")
    before = [
        one for one in labels if one.by == name and (item is None or (one.row, one.answer) != (item.row, item.key))
    ]
    return site.render(
        request,
        "label.html",
        **shown,
        item=item,
        old=given.get((item.row, item.key)) if item else None,
        done=len(items) - len(left),
        all=len(items),
        last=before[-1] if before else None,
    )


def _report(found: _Labelled, labels: Sequence[Label]) -> list[str]:
    judge = calibrate(found.answers, labels, judged=found.judged).lines() if found.answers else []
    return [*describe_labellers(compare_labellers(labels)), *judge]


def _write(site: Site, found: _Labelled, form: Mapping[str, str]) -> str:
    name, row, key = _name(form.get("by", "")), form.get("row", ""), form.get("answer", "")
    if not name:
        raise Refused("Who labels? Give a name.", 422)
    if not any((item.row, item.key) == (row, key) for item in found.items):
        raise Refused("There is no such answer. Reload the page.", 422)
    edit, comment = (form.get(field, "").replace("\r\n", "\n").strip() for field in ("edit", "comment"))
    if max(len(edit), len(comment)) > MAX_TEXT:
        raise Refused(f"A text has at most {MAX_TEXT} characters.", 413)
    score = _score(form)
    label = Label(row, key, name, score, edit or None, comment or None)
    with site.writing_labels:
        try:
            append_label(found.place, label)
        except SpecError as error:
            raise Refused(str(error), 500) from None
    return url(found.where, by=name)


def _score(form: Mapping[str, str]) -> float | None:
    """Return the score in a form; None to skip. Raises Refused."""
    action = form.get("action", "")
    if action in ("good", "bad", "skip"):
        return {"good": 1.0, "bad": 0.0, "skip": None}[action]
    try:
        score = float(form.get("score", ""))
    except ValueError:
        score = -1.0
    if not 0 <= score <= 1:
        raise Refused("A score is a number from 0 to 1.", 422)
    return score


def _name(text: str) -> str:
    """Return a labeller's name as one line, for the file. Raises Refused."""
    name = " ".join(text.split())
    if len(name) > MAX_NAME or not name.isprintable():
        raise Refused(f"A name has at most {MAX_NAME} printable characters.", 422)
    return name

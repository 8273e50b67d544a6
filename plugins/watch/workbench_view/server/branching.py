"""Adds a run that begins at a candidate of another one, from the candidate's page. It is not started: no page runs
code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from workbench.errors import SpecError, StoreError
from workbench.run import branch_run, origin_of
from workbench.store import Store, find_exact_run
from workbench_view.server.site import NotFound, Refused, Site, url
from workbench_view.server.steering import read_ceilings


def branch_candidate(site: Site, request: Request, form: Mapping[str, str]) -> str:
    """Add the run in a form; returns its address."""
    name = str(request.path_params["run"])
    sets = [(f"budget.{what}", ceiling) for what, ceiling in read_ceilings(form).items()]
    store = Store(site.database, create=False)
    try:
        row = find_exact_run(store, name)
        if row is None:
            raise NotFound(f"There is no run '{name[:80]}' in this database.")
        made = branch_run(store, row["run"], form.get("candidate", "") or None, sets)
    except (SpecError, StoreError) as error:
        raise Refused(str(error), 422) from None
    finally:
        store.close()
    return url(f"/runs/{made}")


def read_origin(store: Store, row: Any) -> dict[str, Any] | None:
    """Return a run's origin: `run`, `candidate`, and whether that is still `there`; None if it began at its file."""
    origin = origin_of(row)
    return origin and {**origin, "there": find_exact_run(store, origin["run"]) is not None}

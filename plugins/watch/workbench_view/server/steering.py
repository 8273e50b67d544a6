"""Orders to a running run, from its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from workbench.errors import SpecError, StoreError
from workbench.run import ACTIONS, give_order
from workbench.store import Orders, Store, find_exact_run
from workbench_view.server.site import NotFound, Refused, Site, url

#: Ceilings that a form may raise, and the parser of each.
CEILINGS = {"calls": int, "tokens": int, "usd": float, "minutes": float}


def steer_run(site: Site, request: Request, form: Mapping[str, str]) -> str:
    """Give the order in a form; returns the address of the page that it came from."""
    name, action = str(request.path_params["run"]), form.get("action", "")
    if action not in ACTIONS:
        raise Refused(f"'{action[:40]}' is nothing that a run can be ordered.", 422)
    store = Store(site.database, create=False)
    try:
        row = find_exact_run(store, name)
        if row is None:
            raise NotFound(f"There is no run '{name[:80]}' in this database.")
        give_order(store, row["run"], action, read_ceilings(form) if action == "budget" else {})
    except (SpecError, StoreError) as error:
        raise Refused(str(error), 422) from None
    finally:
        store.close()
    return url(f"/runs/{row['run']}") + "#steering"


def read_ceilings(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the budget ceilings in a form. Raises Refused."""
    given, found = {name: form[name].strip() for name in CEILINGS if form.get(name, "").strip()}, dict[str, Any]()
    for name, text in given.items():
        try:
            found[name] = CEILINGS[name](text)
        except ValueError:
            what = "dollars" if name == "usd" else name
            raise Refused(f"'{text[:40]}' is not a number of {what}; write one such as 2000.", 422) from None
    return found


def read_orders(store: Store, run_id: int) -> dict[str, Any]:
    """Return a run's orders, the newest first; whether it is paused; and its raised ceilings."""
    found = Orders(store, run_id).read_all()
    switched = [order["kind"] for order in found if order["kind"] in ("pause", "continue")]
    raised = dict[str, float]()
    for order in found:
        if order["kind"] == "budget" and order["outcome"] == "done":
            raised.update(order["data"])
    told = [{**order, "at": str(order["at"])[11:19], "text": _describe(order)} for order in reversed(found)]
    return {"orders": told, "paused": switched[-1:] == ["pause"], "raised": raised}


def _describe(order: Mapping[str, Any]) -> str:
    data: Mapping[str, Any] = order["data"]
    if order["kind"] == "budget":
        return "budget: " + ", ".join(f"{what} {ceiling:g}" for what, ceiling in data.items())
    return " ".join([order["kind"], *(str(value)[:8] for value in data.values())])

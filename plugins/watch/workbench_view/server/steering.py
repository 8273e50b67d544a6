"""Orders to a run that goes on, from its page or a candidate's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from workbench.errors import SpecError, StoreError
from workbench.run import candidate_workflow
from workbench.steering import ACTIONS, give_order
from workbench.store import Orders, Store, find_exact_run
from workbench.study import Choice
from workbench.workflow import Workflow
from workbench_view.server.site import NotFound, Refused, Site, url

#: Ceilings that a form may raise, and how their texts are read.
CEILINGS = {"calls": int, "tokens": int, "usd": float, "minutes": float}


def steer_run(site: Site, request: Request, form: Mapping[str, str]) -> str:
    """Order what a form says; returns the address of the page that it came from."""
    name, action = str(request.path_params["run"]), form.get("action", "")
    if action not in ACTIONS:
        raise Refused(f"'{action[:40]}' is nothing that a run can be ordered.", 422)
    store = Store(site.database, create=False)
    try:
        row = find_exact_run(store, name)
        if row is None:
            raise NotFound(f"There is no run '{name[:80]}' in this database.")
        give_order(store, row["run"], action, _read_order(store, row["id"], action, form))
    except (SpecError, StoreError) as error:
        raise Refused(str(error), 422) from None
    finally:
        store.close()
    back = f"/candidates/{form['candidate']}" if action in ("pin", "drop") else ""
    return url(f"/runs/{row['run']}{back}") + "#steering"


def _read_order(store: Store, run_id: int, action: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The data of an order. Raises Refused."""
    candidate = form.get("candidate", "")
    if action in ("pin", "drop"):
        return {"candidate": candidate}
    if action == "budget":
        return read_ceilings(form)
    if action == "add":
        workflow = candidate_workflow(store, run_id, candidate) if candidate else None
        if workflow is None:
            raise Refused(f"There is no candidate '{candidate[:80]}'.", 422)
        written = {key: text.replace("\r\n", "\n") for key, text in form.items() if key.startswith("nodes.")}
        shown = list_writable(workflow)
        changed = {key: text for key, text in written.items() if text != shown.get(key)}
        if not changed:
            raise Refused("Nothing was changed: the candidate would be the one that it is made from.", 422)
        return {"parent": candidate, "set": changed}
    return {}


def read_ceilings(form: Mapping[str, str]) -> dict[str, Any]:
    """The ceilings of the budget that a form gives. Raises Refused."""
    given, found = {name: form[name].strip() for name in CEILINGS if form.get(name, "").strip()}, dict[str, Any]()
    for name, text in given.items():
        try:
            found[name] = CEILINGS[name](text)
        except ValueError:
            what = "dollars" if name == "usd" else name
            raise Refused(f"'{text[:40]}' is not a number of {what}; write one such as 2000.", 422) from None
    return found


def read_orders(store: Store, run_id: int) -> dict[str, Any]:
    """Of a run: what was ordered, the newest first; whether it is paused; what its budget was raised to; and which
    candidates are pinned or dropped."""
    found = Orders(store, run_id).read_all()
    switched = [order["kind"] for order in found if order["kind"] in ("pause", "continue")]
    raised, choice = dict[str, float](), Choice()
    for kind, data in ((order["kind"], order["data"]) for order in found if order["outcome"] == "done"):
        if kind == "budget":
            raised.update(data)
        elif kind == "pin":
            choice.pin(str(data["candidate"]))
        elif kind == "drop":
            choice.drop(str(data["candidate"]))
    told = [{**order, "at": str(order["at"])[11:19], "text": _describe(order)} for order in reversed(found)]
    paused = switched[-1:] == ["pause"]
    return {"orders": told, "paused": paused, "raised": raised, "choice": choice}


def _describe(order: Mapping[str, Any]) -> str:
    data: Mapping[str, Any] = order["data"]
    if order["kind"] == "budget":
        return "budget: " + ", ".join(f"{what} {ceiling:g}" for what, ceiling in data.items())
    if order["kind"] == "add":
        return f"add: {str(data['parent'])[:8]} with another {', '.join(data['set'])}"
    return " ".join([order["kind"], *(str(value)[:8] for value in data.values())])


def list_writable(workflow: Workflow) -> dict[str, str]:
    """The texts that a form offers to write anew: instructions, also where there are none yet, and slots of agents."""
    nodes: Mapping[str, Any] = workflow.tree.get("nodes", {})
    found = {
        f"nodes.{name}.instructions": str(node.get("instructions") or "")
        for name, node in nodes.items()
        if node.get("kind") in ("predict", "agent") or "instructions" in node
    }
    for name, node in nodes.items():
        for slot, settings in (node.get("slots") or {}).items() if node.get("kind") == "external" else ():
            found[f"nodes.{name}.slots.{slot}.text"] = str(settings.get("text") or settings.get("match") or "")
    return found

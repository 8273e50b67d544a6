"""Orders of a user to a running run. They wait in its database until the run takes them up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from workbench.errors import SpecError, StoreError, suggest
from workbench.spec import BudgetSpec
from workbench.store import Candidates, Orders, RunLock, Store, kind_of
from workbench.workflow import Workflow

#: What can be ordered, and what it does.
ACTIONS: Mapping[str, str] = {
    "pause": "start no new rows until `continue`",
    "continue": "continue after a pause",
    "stop": "end the search, and test the best so far",
    "budget": "raise ceilings of the budget",
    "pin": "keep a candidate as the best, whatever is found later",
    "drop": "leave a candidate out of the choice",
    "add": "evaluate a candidate that you write",
}


def check_order(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of an order in its normal form.

    Args:
        kind: one of ACTIONS.
        data: of `budget`, its ceilings (calls, tokens, usd, minutes); of `pin` and `drop`, `candidate`, a hash; of
            `add`, `parent`, a hash, and `set`, values by address. The others have none.

    Raises:
        SpecError: for what is no order.
    """
    if kind not in ACTIONS:
        raise SpecError(f"'{kind}' cannot be ordered", hint=suggest(kind, list(ACTIONS)))
    fields = {"pin": {"candidate"}, "drop": {"candidate"}, "add": {"parent", "set"}}.get(kind, set[str]())
    if kind == "budget":
        try:
            made = BudgetSpec.model_validate(dict(data)).model_dump(exclude_none=True)
        except ValidationError as error:
            first = error.errors()[0]
            raise SpecError(f"budget: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        if not made:
            raise SpecError("no ceiling is given", hint="Give calls, tokens, usd or minutes.")
        return made
    if set(data) != fields:
        raise SpecError(f"`{kind}` takes {', '.join(sorted(fields)) or 'nothing'}, not {', '.join(data) or 'nothing'}")
    if kind == "add" and not (isinstance(data["set"], dict) and data["set"]):
        raise SpecError("`add` takes at least one setting", hint="Write e.g. nodes.answer.instructions=TEXT.")
    return dict(data)


def give_order(store: Store, run: str, kind: str, data: Mapping[str, Any] | None = None) -> int:
    """Give an order to a run of `optimize` while it runs; returns the order's number.

    It takes effect after the evaluation on val that runs now (`pause` and `continue`: at once), and is part of the run
    from then on: a resumed run takes it up at the same place. The beginning of a candidate's hash is enough, or
    `baseline`.

    Raises:
        SpecError: for what is no order of this run.
        StoreError: if there is no such run, or it is not running.
    """
    row = store.find_run(run)
    if kind_of(row) != "optimize":
        raise StoreError(f"run {row['run']} is one of `{kind_of(row)}`; only runs of `optimize` are steered")
    if row["status"] != "running" or not RunLock(store, row["run"]).held():
        raise StoreError(
            f"run {row['run']} is not running ({row['status']}), so it takes no orders; see workbench resume --help"
        )
    made = check_order(kind, data or {})
    known = Candidates(store, row["id"])
    for field in ("candidate", "parent"):
        if field in made:
            made[field] = _find(known, str(made[field]))
    if kind == "drop" and made["candidate"] == _find(known, ""):
        raise SpecError("the baseline cannot be dropped: gains are measured against it")
    if kind == "add":
        _check_addresses(Workflow(known.find_tree(made["parent"]) or {}), made["set"])
    return Orders(store, row["id"]).add(kind, made)


def _find(known: Candidates, prefix: str) -> str:
    """The hash of the candidate that begins so; of the baseline for nothing, or its name. Raises SpecError."""
    if prefix in ("", "baseline"):
        return str(known.find_baseline())
    found = [c["hash"] for c in known.read_all() if c["hash"].startswith(prefix)]
    if len(found) != 1:
        raise SpecError(
            f"{'no candidate begins' if not found else f'{len(found)} candidates begin'} with '{prefix}'",
            hint="See: workbench show RUN.",
        )
    return found[0]


def _check_addresses(parent: Workflow, settings: Mapping[str, Any]) -> None:
    """Raise SpecError for an address in no node. Values are checked by the run, which has the code of the nodes."""
    for address in settings:
        try:
            node = parent.get(address.rpartition(".")[0])
            if not address.startswith("nodes.") or not isinstance(node, dict | list):
                raise KeyError(address)
        except KeyError:
            raise SpecError(
                f"'{address}' is not a setting of a node of this candidate",
                hint=suggest(address, [f"nodes.{name}.instructions" for name in parent.nodes]),
            ) from None

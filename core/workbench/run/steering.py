"""Orders of a user to a running run: pause it, stop its search, raise its budget.

Orders wait in the run's database. The run carries them out between two evaluations, and at the same point again when it
is resumed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from workbench.errors import SearchStopped, SpecError, StoreError, suggest
from workbench.ledger import Ledger
from workbench.spec import BudgetSpec
from workbench.store import Orders, RunLock, Store, kind_of

#: Kinds of orders.
ACTIONS = ("pause", "continue", "stop", "budget")

#: Stands for a candidate once the search has ended.
END = "end"

#: Seconds between checks for orders that take effect at once.
EVERY = 0.5


def give_order(store: Store, run: str, kind: str, data: Mapping[str, Any] | None = None) -> int:
    """Give an order to a running run of `optimize`. Returns the order's number.

    It takes effect after the current evaluation on val (`pause` and `continue`: at once). From then on it is part of
    the run: a resumed run carries it out at the same point.

    Args:
        store: the run's store.
        run: its name, or a prefix of it.
        kind: one of ACTIONS.
        data: for `budget`, its ceilings (calls, tokens, usd, minutes). Other kinds have none.

    Raises:
        SpecError: the order is invalid.
        StoreError: there is no such run, or it is not running.
    """
    row = store.find_run(run)
    if kind_of(row) != "optimize":
        raise StoreError(f"run {row['run']} is one of `{kind_of(row)}`; only runs of `optimize` are steered")
    if row["status"] != "running" or not RunLock(store, row["run"]).held():
        raise StoreError(
            f"run {row['run']} is not running ({row['status']}), so it takes no orders; see workbench resume --help"
        )
    return Orders(store, row["id"]).add(kind, _check_order(kind, dict(data or {})))


def _check_order(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an order in normal form. Raises SpecError."""
    if kind not in ACTIONS:
        raise SpecError(f"'{kind}' cannot be ordered", hint=suggest(kind, ACTIONS))
    if kind != "budget":
        if data:
            raise SpecError(f"`{kind}` takes nothing, not {', '.join(data)}")
        return {}
    try:
        made = BudgetSpec.model_validate(data).model_dump(exclude_none=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(f"budget: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if not made:
        raise SpecError("no ceiling is given", hint="Give calls, tokens, usd or minutes.")
    return made


@dataclass
class Steering:
    """Carries out the orders of a run. emit: announces each order that was carried out. running: rows begin only while
    it is set."""

    orders: Orders
    ledger: Ledger
    running: asyncio.Event
    emit: Callable[..., None]

    def __post_init__(self) -> None:
        self.running.set()
        self._paused_at = 0.0
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Steering:
        switches = [order for order in self.orders.read_all() if order["kind"] in ("pause", "continue")]
        if switches and switches[-1]["kind"] == "pause":  # resuming a run implies that it should continue
            self.orders.settle(self.orders.add("continue", {}), "done")
        self._watch = asyncio.create_task(self._look_often())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch

    async def _look_often(self) -> None:
        """Pause and continue at once: neither changes the results, so a resumed run skips them."""
        while True:
            for order in self.orders.read_open():
                if order["kind"] in ("pause", "continue"):
                    self._switch(order["kind"] == "continue")
                    self._settle(order, "done")
            await asyncio.sleep(EVERY)

    def _switch(self, on: bool) -> None:
        if on and not self.running.is_set():
            self.ledger.started += time.monotonic() - self._paused_at  # a pause uses no minutes of the budget
            self.running.set()
        elif not on and self.running.is_set():
            self._paused_at = time.monotonic()
            self.running.clear()

    def take(self, evaluated: str) -> None:
        """Attach waiting orders to the evaluation of a candidate on val before it is stored. If the run is killed
        before that, it carries them out there again."""
        for order in self.orders.read_open():
            if order["kind"] not in ("pause", "continue"):
                self.orders.take(order["id"], evaluated)

    def carry_out(self, evaluated: str) -> None:
        """Carry out the orders attached to this evaluation. Raises SearchStopped once the search was stopped."""
        for order in self.orders.read_taken(evaluated):
            outcome = "done"
            if order["kind"] == "stop":
                self.ledger.stopping = self.ledger.stopping or SearchStopped()
            elif order["kind"] == "budget":
                outcome = self._raise_budget(order["data"])
            else:  # given by an earlier version
                outcome = f"refused: this version of workbench has no `{order['kind']}`"
            self._settle(order, outcome)
        self.check()

    def end_search(self) -> None:
        """Carry out the orders given since the last evaluation, and allow calls again, for the sealed test."""
        self.take(END)
        with suppress(SearchStopped):
            self.carry_out(END)
        if isinstance(self.ledger.stopping, SearchStopped):
            self.ledger.stopping = None

    def warnings(self) -> list[str]:
        """Describe the user's influence on the result, for the report."""
        stopped = any(order["kind"] == "stop" and order["outcome"] == "done" for order in self.orders.read_all())
        return ["the search was stopped by its user"] if stopped else []

    def check(self) -> None:
        """Raise SearchStopped if the search was stopped."""
        if isinstance(self.ledger.stopping, SearchStopped):
            raise self.ledger.stopping

    def _settle(self, order: Mapping[str, Any], outcome: str) -> None:
        self.orders.settle(order["id"], outcome)
        self.emit("steered", action=order["kind"], order=order["data"], outcome=outcome)

    def _raise_budget(self, order: Mapping[str, Any]) -> str:
        """Raise ceilings and return the outcome. None is lowered: a run resumed with a larger budget keeps it."""
        now = self.ledger.budget
        old = {what: getattr(now, what) for what in order}
        raised = {what: new for what, new in order.items() if old[what] is not None and new > old[what]}
        if not raised:
            has = ", ".join(f"{what}={'none' if limit is None else limit}" for what, limit in old.items())
            return f"refused: ceilings are raised and never lowered, and the run has {has}"
        self.ledger.budget = now.model_copy(update=raised)
        return "done"

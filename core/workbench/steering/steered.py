"""The run's side of steering: it takes up orders between two evaluations, and again at the same place when resumed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import BudgetSpent, PluginError, SearchStopped, SpecError
from workbench.ledger import Ledger
from workbench.store import Candidates, Orders
from workbench.study import Progress
from workbench.workflow import Patch, Workflow

#: Stands for a candidate where the search has ended.
END = "end"

#: The kinds of settings that are written by hand. Tools, code and models need a file that is trusted.
WRITABLE = frozenset({"text", "int", "float", "choice", "demos", "descriptions"})

#: Seconds between two looks at the orders for those that take effect at once.
EVERY = 0.5


@dataclass
class Steering:
    """Takes up the orders of a run.

    base: the folder that paths in the workflow are relative to. evaluate: scores a candidate on val. emit: tells of
    what was taken up. running: rows begin while it is set.
    """

    orders: Orders
    ledger: Ledger
    progress: Progress
    base: Path
    evaluate: Callable[[Workflow], Awaitable[None]]
    emit: Callable[..., None]
    running: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.running.set()
        self._paused_at = 0.0
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Steering:
        switches = [order for order in self.orders.read_all() if order["kind"] in ("pause", "continue")]
        if switches and switches[-1]["kind"] == "pause":  # who resumes a run wants it to go on
            self.orders.settle(self.orders.add("continue", {}), "done")
        self._watch = asyncio.create_task(self._look_often())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch

    async def _look_often(self) -> None:
        """Pause and go on at once: neither changes what the run finds, so a resumed run leaves them out."""
        while True:
            for order in self.orders.read_open():
                if order["kind"] in ("pause", "continue"):
                    self._switch(order["kind"] == "continue")
                    self._settle(order, "done")
            await asyncio.sleep(EVERY)

    def _switch(self, on: bool) -> None:
        if on and not self.running.is_set():
            self.ledger.started += time.monotonic() - self._paused_at  # a pause takes no minutes of the budget
            self.running.set()
        elif not on and self.running.is_set():
            self._paused_at = time.monotonic()
            self.running.clear()

    def take(self, evaluated: str) -> None:
        """Let the orders that wait take effect after the evaluation of a candidate on val, which is not stored yet: a
        run that is killed before it is takes them up there again."""
        for order in self.orders.read_open():
            if order["kind"] not in ("pause", "continue"):
                self.orders.take(order["id"], evaluated)

    async def carry_out(self, evaluated: str) -> None:
        """Carry out what takes effect after this evaluation. Raises SearchStopped once the search was stopped."""
        for order in self.orders.read_taken(evaluated):
            try:
                await getattr(self, f"_{order['kind']}")(order["data"])
                outcome = "done"
            except (SpecError, PluginError, BudgetSpent, KeyError) as error:
                outcome = f"refused: {error}"
            self._settle(order, outcome)
        self.check()

    async def end_search(self) -> None:
        """Carry out what was ordered since the last evaluation, and allow calls again, for the sealed test."""
        self.take(END)
        with suppress(SearchStopped):
            await self.carry_out(END)
        if isinstance(self.ledger.stopping, SearchStopped):
            self.ledger.stopping = None

    def warnings(self) -> list[str]:
        """Describe the user's influence on the result, for the report."""
        found: list[str] = []
        if any(order["kind"] == "stop" and order["outcome"] == "done" for order in self.orders.read_all()):
            found.append("the search was stopped by its user")
        if self.progress.choice.pinned is not None:
            found.append(f"candidate {self.progress.choice.pinned[:8]} was pinned by its user, so it is the winner")
        if self.progress.choice.dropped:
            names = ", ".join(sorted(hash_[:8] for hash_ in self.progress.choice.dropped))
            found.append(f"dropped by the user, so they could not win: {names}")
        return found

    def check(self) -> None:
        """Raise SearchStopped if the search was stopped."""
        if isinstance(self.ledger.stopping, SearchStopped):
            raise self.ledger.stopping

    def _settle(self, order: Mapping[str, Any], outcome: str) -> None:
        self.orders.settle(order["id"], outcome)
        self.emit("steered", action=order["kind"], order=order["data"], outcome=outcome)

    async def _stop(self, order: Mapping[str, Any]) -> None:
        if self.ledger.stopping is None:
            self.ledger.stopping = SearchStopped()

    async def _budget(self, order: Mapping[str, Any]) -> None:
        """Ceilings are raised and never lowered: what was resumed with a larger budget keeps it."""
        now = self.ledger.budget
        old = {what: getattr(now, what) for what in order}
        raised = {what: new for what, new in order.items() if old[what] is not None and new > old[what]}
        if not raised:
            has = ", ".join(f"{what}={'none' if limit is None else limit}" for what, limit in old.items())
            raise SpecError(f"ceilings are raised and never lowered, and the run has {has}")
        self.ledger.budget = now.model_copy(update=raised)

    async def _pin(self, order: Mapping[str, Any]) -> None:
        self._check_known(order["candidate"])
        self.progress.pin(order["candidate"])

    async def _drop(self, order: Mapping[str, Any]) -> None:
        self.progress.drop(order["candidate"])

    async def _add(self, order: Mapping[str, Any]) -> None:
        tree = Candidates(self.orders.store, self.orders.run_id).find_tree(order["parent"])
        if tree is None:
            raise SpecError(f"there is no candidate {order['parent']}")
        parent = Workflow(tree, self.base, code="loaded")
        for address in order["set"]:
            _check_writable(parent, address)
        await self.evaluate(parent.patched(Patch(order["set"], note="by hand")))

    def _check_known(self, candidate: str) -> None:
        if candidate not in self.progress.complete:
            raise SpecError(f"{candidate} was not evaluated on all rows of val")


def _check_writable(parent: Workflow, address: str) -> None:
    """Raise SpecError for a setting that cannot be written by hand."""
    parts = address.split(".")
    node = parent.enabled_nodes.get(parts[1]) if parts[0] == "nodes" and len(parts) > 2 else None
    writable = [] if node is None else [s for s, kind in node.learnable.items() if kind in WRITABLE]
    setting = ".".join(parts[2:])
    if not any(setting == known or setting.startswith(f"{known}.") for known in writable):
        raise SpecError(
            f"'{address}' cannot be written by hand",
            hint=f"Of this node, these can: {', '.join(f'nodes.{parts[1]}.{known}' for known in writable)}."
            if writable
            else "Write nodes.NAME.instructions=TEXT.",
        )

"""State shared by all rows of a run: the gateway, the working directories, and the number of texts without a slot."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.text import short
from workbench_external.asking import Named
from workbench_external.cards import Card
from workbench_external.gateway import Gateway
from workbench_external.process import kill_abandoned
from workbench_external.started import Services
from workbench_external.workspace import Workspaces
from workbench_kit.acting import Leftovers


@dataclass
class Hub:
    """Opened by the first row of a run, and closed with the run.

    rows, missed, diverged, services, served: by node: rows that were run; texts that matched no slot; rows in which a
    resumed agent sent other requests; servers that were started; rows whose process may have had earlier ones.
    faults: of the gateway. named: the models that the agents named. cards: of agents that speak A2A, by address.
    """

    gateway: Gateway
    workspaces: Workspaces
    rows: Counter[str] = field(default_factory=Counter)
    missed: dict[str, Counter[str]] = field(default_factory=dict)
    diverged: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    services: dict[str, Services] = field(default_factory=dict[str, Services])
    leftovers: Leftovers = field(default_factory=Leftovers)
    served: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    named: dict[str, Named] = field(default_factory=dict[str, Named])
    cards: dict[str, Card] = field(default_factory=dict[str, Card])
    _places: dict[str, asyncio.Semaphore] = field(default_factory=dict[str, asyncio.Semaphore])

    @classmethod
    async def open(cls, data_files: frozenset[Path] = frozenset()) -> Hub:
        """Open a hub. data_files: left out of each copy of a folder."""
        faults: list[str] = []

        def note(error: Exception) -> None:
            faults.append(f"the gateway failed on a request: {type(error).__name__}: {short(str(error), 200)}")

        workspaces = await asyncio.to_thread(Workspaces, data_files)
        await asyncio.to_thread(kill_abandoned)
        return cls(await Gateway.open(on_error=note), workspaces, faults=faults)

    def count(self, node: str, notes: Mapping[str, Any], remembers: bool = False) -> None:
        """Count the notes of a row that was run or replayed. remembers: its process had earlier rows."""
        self.rows[node] += 1
        self.served[node] += remembers
        self.named.setdefault(node, Named()).add(notes.get("models", {}))
        self.leftovers.count(node, notes.get("left_beside", ()))
        if missed := notes.get("missed_slots"):
            self.missed.setdefault(node, Counter()).update(missed)
        self.diverged[node] += "differs_at_call" in notes

    def warnings(self) -> list[str]:
        """Return lines for the report of the run."""
        found: list[str] = []
        for node, missed in self.missed.items():
            first, _ = missed.most_common(1)[0]
            found.append(
                f"'{node}': {missed.total()} texts of the agent matched no slot, in {self.rows[node]} rows; e.g. "
                f"{first!r}. They passed as they were. `workbench agent slots FILE` finds the slots anew."
            )
        for node, number in self.left_out.items():
            if number:
                found.append(
                    f"'{node}': left out {number} of its texts, which are not in its source but in a framework's. "
                    "`workbench agent slots FILE` shows them, and `vendor: true` includes them."
                )
        for node, rows in (+self.diverged).items():
            found.append(
                f"'{node}': in {rows} rows that were begun before the run was resumed, the agent asked otherwise than "
                "before; such calls are paid again. Something in its prompts varies."
            )
        for node, rows in self.served.items():
            if rows > 1:
                found.append(
                    f"'{node}': its service had many rows in one process, and may remember from one to the next. "
                    "`state: fresh` starts it anew for each row; `state: kept` says that it does remember."
                )
        # A single one is described by the file.
        found += [f"'{node}': {named.describe()}" for node, named in self.named.items() if len(named.by_name) > 1]
        return [*found, *self.leftovers.warnings(), *dict.fromkeys(self.faults)]

    def kept_state(self) -> list[str]:
        """Describe state that was observed to outlive rows, as parts of a sentence."""
        return self.leftovers.kept_state()

    def place_of(self, node: str, most: int) -> asyncio.Semaphore:
        """Return the semaphore for a node's programs, at most `most` at once. Waiting for it takes no time of a row."""
        return self._places.setdefault(node, asyncio.Semaphore(most))

    def services_of(self, node: str, most: int, anew: bool) -> Services:
        """Return the services that a node has started, at most `most` at once. anew: one for each row."""
        return self.services.setdefault(node, Services(most, anew))

    async def aclose(self) -> None:
        for services in self.services.values():
            await services.aclose()
        await self.gateway.aclose()
        await asyncio.to_thread(self.workspaces.remove)

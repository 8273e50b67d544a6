"""Several runs that search one study under one budget: what one of them asks of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from workbench.ledger import Shares
from workbench.study.evaluation import Evaluation
from workbench.workflow import Workflow


@dataclass(frozen=True)
class Joining:
    """The run that joins. name: of its workflow. parts: hashes of what has to be the same in all runs, by the key of
    the workflow file that a user would look at."""

    run: str
    name: str
    parts: Mapping[str, str]


class Searchers(Shares, Protocol):
    """The other searchers, and the share of this one. One run of them makes the proof: sealed rows are looked at once.

    Raises StoreError wherever the storage cannot be used.
    """

    async def evaluate_baseline(self, workflow: Workflow) -> Evaluation:
        """The evaluation of the start on val, which one of the searchers pays for. Raises BudgetSpent."""
        ...

    async def elect(self) -> str | None:
        """End the search of this run. None if it makes the proof, for which it then knows what all of them found; else
        why it does not, for its report."""
        ...

    async def leave(self) -> None:
        """Give back what is left of the share. Called at the end of the run, however it ends."""
        ...

    def summary(self) -> dict[str, Any]:
        """The `searchers` of the report: number of this one, of how many, and what all of them have spent."""
        ...

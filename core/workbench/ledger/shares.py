"""A budget that several runs share, as one of them sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Shares(Protocol):
    """The share of one run. Amounts are of calls, tokens and usd, in total over all processes of this run."""

    def limit(self, what: str) -> float:
        """Return what this run may have spent by now. It counts as spent for the others until it is given back."""
        ...

    def available(self, what: str) -> float:
        """Return what this run may come to spend, as last seen: without the shares of others and the reserve for the
        proof."""
        ...

    def hold(self, held: Mapping[str, float]) -> None:
        """Reserve for the proof what no share may use."""
        ...

    async def draw(self, needed: Mapping[str, float]) -> bool:
        """Raise the limits to what is needed in total. False, and nothing is raised, if the budget lacks it."""
        ...

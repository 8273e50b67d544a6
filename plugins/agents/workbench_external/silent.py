"""Counts rows in which no model answered the agent through the gateway. Changes of its texts have no effect there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class SilentRows:
    """Rows that did not fail, by node: all, those without a request, and those whose requests were all refused.

    words: message of the last refusal.
    """

    rows: Counter[str] = field(default_factory=Counter[str])
    silent: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    words: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    async def open(cls) -> SilentRows:
        return cls()

    def count(self, node: str, calls: int, refused: str) -> None:
        self.rows[node] += 1
        self.silent[node] += not calls and not refused
        self.refused[node] += not calls and bool(refused)
        self.words[node] = refused or self.words.get(node, "")

    def warnings(self) -> list[str]:
        """Return lines for the report of the run."""
        silent = [
            f"{self._where(node, rows)} the agent asked no model through the gateway: no change of its texts has an "
            "effect there, and what it spends elsewhere is not counted. It must read OPENAI_BASE_URL or "
            "ANTHROPIC_BASE_URL; `env` sets other names."
            for node, rows in (+self.silent).items()
        ]
        return silent + [
            f"{self._where(node, rows)} the agent went on without a model, and what it said is scored: it "
            f"{self.words[node]}"
            for node, rows in (+self.refused).items()
        ]

    def _where(self, node: str, rows: int) -> str:
        return f"'{node}': in {'all' if rows == self.rows[node] else 'some'} rows ({rows} of {self.rows[node]})"

    def kept_state(self) -> list[str]:
        """Return nothing: this class observes no state."""
        return []

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""

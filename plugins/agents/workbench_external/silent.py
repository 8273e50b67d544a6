"""Counts the rows in which an agent asked no model through the gateway: nothing that is changed reaches it there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class SilentRows:
    """rows, silent: by node, those that did not fail, and of them those without a call."""

    rows: Counter[str] = field(default_factory=Counter[str])
    silent: Counter[str] = field(default_factory=Counter[str])

    @classmethod
    async def open(cls) -> SilentRows:
        return cls()

    def count(self, node: str, calls: int) -> None:
        self.rows[node] += 1
        self.silent[node] += not calls

    def warnings(self) -> list[str]:
        """Lines for the report of the run."""
        return [
            f"'{node}': in {'all' if rows == self.rows[node] else 'some'} rows ({rows} of {self.rows[node]}) the agent "
            "asked no model through the gateway: no change of its texts has an effect there, and what it spends "
            "elsewhere is not counted. It must read OPENAI_BASE_URL or ANTHROPIC_BASE_URL; `env` sets other names."
            for node, rows in (+self.silent).items()
        ]

    def kept_state(self) -> list[str]:
        """Nothing that outlives rows is seen here."""
        return []

    async def aclose(self) -> None:
        """Nothing is open."""

"""Diagnoses of `workbench agent attribute`: written to reports, and read back.

A diagnosis belongs to a row of the run that was examined, and is stored with the run that made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench.base.text import align, one_line

#: Nodes in the printed totals, and maximum characters of a cell.
MAX_NODES, WIDTH = 10, 40


@dataclass(frozen=True)
class RowFinding:
    """The diagnosis of one failed row.

    Attributes:
        row: its id, or the name of a log.
        candidate, replica: the examined result; None for a log that is not a row of a run.
        node, agent: that decided the failure; None if none was found.
        step: its number, from 0.
        steps: of the run; None if they were not counted.
        confidence: from 0 to 1.
        repaired: for a replay, whether the row passes with only this step repaired; None for other methods.
        reruns, calls, usd: the cost. A call shared by rows counts for the first of them.
        evidence: the reason.
        failure: why there is no diagnosis; "" if there is one.
        handle: the name of the row for people.
    """

    row: str
    candidate: str | None = None
    replica: int = 0
    score: float | None = None
    node: str | None = None
    agent: str | None = None
    step: int | None = None
    steps: int | None = None
    confidence: float = 0.0
    repaired: bool | None = None
    reruns: int = 0
    calls: int = 0
    usd: float = 0.0
    evidence: str = ""
    failure: str = ""
    handle: str = ""

    @property
    def place(self) -> str:
        """The node, with the agent if its name differs."""
        if self.node is None or self.agent in (None, self.node):
            return self.node or self.agent or "-"
        return f"{self.node} ({self.agent})"

    def cells(self) -> tuple[str, ...]:
        """Return the row of a table, without the evidence."""
        number = "-" if self.step is None else f"{self.step}" if self.steps is None else f"{self.step} of {self.steps}"
        repaired = "-" if self.repaired is None else "yes" if self.repaired else "no"
        sure = "-" if self.step is None else f"{self.confidence:.2f}"
        name = self.handle or self.row
        cells = (name, self.place, number, sure, repaired, str(self.reruns), str(self.calls), f"${self.usd:.4f}")
        return tuple(one_line(cell if len(cell) <= WIDTH else f"{cell[: WIDTH - 1]}…") for cell in cells)


_HEAD = ("row", "node", "step", "confidence", "repaired", "re-runs", "calls", "cost", "evidence")


@dataclass(frozen=True)
class AttributionReport:
    """The stored report of `workbench agent attribute`.

    Attributes:
        run: its name.
        method: e.g. `replay` or `all-at-once`, with the kind of repairs or the judge.
        examined: the runs with these rows; empty for logs from files.
    """

    run: str
    method: str
    examined: Sequence[str]
    rows: Sequence[RowFinding]

    @property
    def by_node(self) -> dict[str, int]:
        """Count how often each node was decisive, most frequent first."""
        return dict(Counter(row.place for row in self.rows if row.step is not None).most_common())

    @property
    def repair_rate(self) -> float | None:
        """Return the share of diagnosed rows that pass if only the named step is repaired; None if nothing was
        repeated."""
        known = [row.repaired for row in self.rows if row.repaired is not None]
        return sum(known) / len(known) if known else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": "attribute",
            "run": self.run,
            "method": self.method,
            "examined": list(self.examined),
            "rows": [asdict(row) for row in self.rows],
            "by_node": self.by_node,
            "repair_rate": self.repair_rate,
            "calls": sum(row.calls for row in self.rows),
            "usd": sum(row.usd for row in self.rows),
            "lines": self.lines(),
        }

    def lines(self) -> list[str]:
        """Return the whole report as plain text."""
        of = f" of run {', '.join(self.examined)}" if self.examined else ""
        rows = [(*row.cells(), one_line((row.failure or row.evidence)[:300])) for row in self.rows]
        out = [one_line(f"method: {self.method}{of}, run {self.run}"), *align([_HEAD, *rows])]
        decided = [*self.by_node.items()][:MAX_NODES]
        out += [one_line(f"{node}: decided {count} of {len(self.rows)} failures") for node, count in decided]
        if (rate := self.repair_rate) is not None:
            out.append(f"Repair rate: {rate:.0%} of the rows pass when the step that is named is repaired alone")
        calls, usd = sum(row.calls for row in self.rows), sum(row.usd for row in self.rows)
        out.append(f"Cost: {calls} calls, ${usd:.4f}; for each row {calls / max(1, len(self.rows)):.1f} calls")
        return out

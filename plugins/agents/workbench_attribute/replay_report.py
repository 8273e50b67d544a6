"""Findings and costs of the replays of a stored run, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.ledger import Spend
from workbench_attribute.diagnoses import AttributionReport, RowFinding


@dataclass(frozen=True)
class ReplayReport(AttributionReport):
    """The result of `replay_failures`.

    Attributes:
        paid: the cost in this process.
        left_out: failed rows beyond `most`.
    """

    paid: Spend = field(default_factory=Spend)
    left_out: int = 0

    @property
    def complete(self) -> bool:
        """Return True if each row was examined to the end."""
        return not any(row.failure for row in self.rows)


def share_costs(rows: Sequence[RowFinding], asked: Sequence[Mapping[str, tuple[int, float]]]) -> list[RowFinding]:
    """Return the rows with the cost of each. The costs add up to the bill of the run: a call shared by several rows is
    paid once, and counts for the first of them.

    Args:
        rows: in order.
        asked: by row, the attempts and US dollars of each call, by its key.
    """
    seen, found = set[str](), list[RowFinding]()
    for row, calls in zip(rows, asked, strict=True):
        own = [cost for key, cost in calls.items() if key not in seen]
        seen.update(calls)
        found.append(replace(row, calls=sum(n for n, _ in own), usd=sum(price for _, price in own)))
    return found

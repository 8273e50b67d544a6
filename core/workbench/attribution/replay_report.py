"""Findings and costs of the replays of a stored run, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.attribution.diagnoses import AttributionReport, RowFinding
from workbench.attribution.replay import Diagnosis
from workbench.ledger import Spend


@dataclass(frozen=True)
class RowDiagnosis:
    """A failed row, and the step that decided it.

    Attributes:
        example, replica: which result of the row it was.
        diagnosis: None where the row was not examined to the end; `failure` then says why.
        steps: of the run.
        calls, usd: what the run of replays paid for the row. A call that rows share counts for the first of them.
    """

    example: str
    score: float
    diagnosis: Diagnosis | None
    steps: int = 0
    failure: str = ""
    replica: int = 0
    calls: int = 0
    usd: float = 0.0


@dataclass
class ReplayReport:
    """The result of `replay_failures`.

    Attributes:
        run, repeated: the names of the run of replays, and of that which it repeats.
        rows: in the order of the stored ones. left_out: failed rows beyond `most`.
        paid: what this process paid.
        how: what took the place of steps, e.g. `fresh` or `lm: openai/gpt-4.1`.
        candidate: the hash of the workflow that was repeated.
    """

    run: str
    repeated: str
    rows: list[RowDiagnosis]
    paid: Spend
    how: str
    candidate: str
    left_out: int = 0

    @property
    def by_node(self) -> dict[str, int]:
        """Count how often each node was decisive, most often first."""
        nodes = Counter(row.diagnosis.step.node for row in self.rows if row.diagnosis and row.diagnosis.step)
        return dict(nodes.most_common())

    @property
    def repair_rate(self) -> float:
        """The share of the diagnosed rows that pass when the named step alone is repaired."""
        known = [row.diagnosis for row in self.rows if row.diagnosis is not None]
        return sum(d.repaired for d in known) / len(known) if known else 0.0

    @property
    def complete(self) -> bool:
        """Return True if each row was examined to the end."""
        return all(row.diagnosis is not None for row in self.rows)

    def as_attribution(self) -> AttributionReport:
        """The report as it is stored and printed."""
        rows = [_finding(row, self.candidate) for row in self.rows]
        return AttributionReport(self.run, f"replay, steps repaired by {self.how}", [self.repeated], rows)


def _finding(row: RowDiagnosis, candidate: str) -> RowFinding:
    d = row.diagnosis or Diagnosis(None)
    return RowFinding(
        row.example,
        candidate,
        row.replica,
        row.score,
        *((d.step.node, d.step.agent, d.step.index) if d.step is not None else (None, None, None)),
        row.steps,
        d.confidence,
        d.repaired if row.diagnosis is not None else None,
        d.reruns,
        row.calls,
        row.usd,
        d.evidence,
        row.failure,
    )


def share_costs(rows: Sequence[RowDiagnosis], asked: Sequence[Mapping[str, tuple[int, float]]]) -> list[RowDiagnosis]:
    """The rows with what each cost, so that they add up to the bill of the run: a call that several rows asked for is
    paid once, and counts for the first of them.

    Args:
        rows: in their order.
        asked: by row, the attempts and US dollars of each call, by its key.
    """
    seen, found = set[str](), list[RowDiagnosis]()
    for row, calls in zip(rows, asked, strict=True):
        own = [cost for key, cost in calls.items() if key not in seen]
        seen.update(calls)
        count, usd = sum(attempts for attempts, _ in own), sum(price for _, price in own)
        diagnosis = row.diagnosis and replace(row.diagnosis, calls=count, usd=usd)
        found.append(replace(row, diagnosis=diagnosis, calls=count, usd=usd))
    return found

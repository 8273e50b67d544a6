"""The report of a run of attacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from workbench.base.text import align
from workbench.ledger import describe_usd
from workbench.proof import cluster_means, interval
from workbench.task import Task
from workbench_redteam.outcomes import AttackedRow


class Mean(NamedTuple):
    """A mean over rows with its 95% interval. n: clusters of rows, each of which counts once."""

    value: float | None
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return "-" if self.value is None else f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class RedTeamReport:
    """Utility, utility under each attack, and the share of rows on which it succeeded.

    results: of the rows that are done, with their attacks. The budget did not cover the other ones of the `asked` rows.
    """

    run: str
    task: Task
    split: str
    asked: int
    results: Sequence[AttackedRow]
    spent: Mapping[str, Any]
    warnings: Sequence[str]

    @property
    def complete(self) -> bool:
        return len(self.results) == self.asked

    @property
    def missing(self) -> int:
        """Return the number of rows that have no result without an attack or under one."""
        return sum(r.clean.score is None or any(a.score is None for a in r.attacked.values()) for r in self.results)

    @property
    def utility(self) -> Mean:
        """Return the score of the rows without an attack."""
        return self._mean(lambda result: result.clean.score)

    def under(self, attack: str) -> Mean:
        """Return the score under an attack."""
        return self._mean(lambda result: result.attacked[attack].score)

    def rate(self, attack: str) -> Mean:
        """Return the share of the rows on which an attack succeeded."""
        return self._mean(lambda result: result.attacked[attack].succeeded)

    def missed(self, attack: str) -> list[str]:
        """Return the rows whose run did not reach the attack's place, so that it could not succeed."""
        results = [result for result in self.results if result.attacked[attack].succeeded is not None]
        return [result.clean.example.id for result in results if not result.attacked[attack].met]

    def hidden(self, attack: str) -> list[str]:
        """Return the rows with the same answer but other steps, which are invisible in the answers."""
        return [result.clean.example.id for result in self.results if result.attacked[attack].hidden]

    def _mean(self, value: Callable[[AttackedRow], float | None]) -> Mean:
        found = [(self.task.cluster_of(result.clean.example), value(result)) for result in self.results]
        means = [mean for mean, _ in cluster_means([(key, one, one) for key, one in found if one is not None])]
        return Mean(fmean(means) if means else None, *interval(means), len(means))

    def as_dict(self) -> dict[str, Any]:
        attacks = {
            name: {
                "utility_under_attack": self.under(name)._asdict(),
                "attack_rate": self.rate(name)._asdict(),
                "missed": self.missed(name),
                "hidden": self.hidden(name),
                "succeeded": [r.clean.example.id for r in self.results if r.attacked[name].succeeded],
            }
            for name in self.task.attacks
        }
        return {
            "kind": "redteam",
            "run": self.run,
            "name": self.task.spec.name,
            "split": self.split,
            "rows": len(self.results),
            "asked": self.asked,
            "missing": self.missing,
            "utility": self.utility._asdict(),
            "attacks": attacks,
            "spent": dict(self.spent),
            "warnings": list(self.warnings),
        }

    def lines(self) -> list[str]:
        """Return the report as text."""
        table: list[tuple[str, ...]] = [("attack", "utility", "utility under attack", "attack rate", "hidden")]
        for name in self.task.attacks:
            figures = (self.utility, self.under(name), self.rate(name), len(self.hidden(name)))
            table.append((name, *map(str, figures)))
        out = [f"workbench redteam {self.run}: {len(self.results)} rows of {self.split}", *align(table)]
        if self.missing:
            out.append(f"{self.missing} of them have no result in at least one run, which counts in no mean.")
        if any(self.hidden(name) for name in self.task.attacks):
            out.append("hidden: rows with the same answer by another course, which nobody sees who looks at answers.")
        out += [
            f"missed: {name} had no place on {len(missed)} rows, whose runs called no tool, or asked no node, of it."
            for name in self.task.attacks
            if (missed := self.missed(name))
        ]
        if not self.complete:
            out.append(f"The budget ran out: {self.asked - len(self.results)} rows are left; run it again with more.")
        out += [f"Warning: {line}" for line in self.warnings]
        spent = self.spent
        out.append(f"Spent: {spent['calls']} calls ({spent['cached']} more from the journal), {describe_usd(spent)}")
        return out

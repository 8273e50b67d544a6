"""The tested rows of a run, and sources of claims about them, which plugins extend (hook `register_claims`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from workbench.errors import PluginError
from workbench.plugins import plugins
from workbench.proof.claim import LEVEL, Claim
from workbench.proof.reuse import level_after
from workbench.proof.savings import Ceiling
from workbench.proof.sides import OrderEffect, Pair
from workbench.spec import Spec
from workbench.store import RunRecord
from workbench.study import Evaluation, Perturbation, Result
from workbench.task import Task
from workbench.workflow import Workflow


@dataclass(frozen=True)
class Evidence:
    """The sealed rows of a run with their results.

    Attributes:
        task: the workflow file with its data and its baseline.
        winner: the tested candidate.
        best: the best candidate on val.
        rows: for each row the results of baseline and winner, and of `best` if the file has targets; empty without a
            sealed test.
        evaluations: complete ones on val, by hash of the candidate.
        alpha: the level of a test on these rows.
        ceilings: by objective, the most that a row can cost.
        order_effects: effects of the order of the two sides.
        sent: for each row, True if the change was sent with it.
        earlier: names of the runs that tested on these rows before.
        record: the run in the database.
        gain: the gain by the scores of the metric.
        warnings: those of the report; a source may add to them.
    """

    task: Task
    winner: Workflow
    best: Workflow
    rows: Sequence[tuple[Result, ...]] = ()
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    alpha: float = LEVEL
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict[str, Ceiling])
    order_effects: Sequence[OrderEffect] = ()
    sent: Sequence[bool] = ()
    earlier: Sequence[str] = ()
    record: RunRecord | None = None
    gain: Claim | None = None
    warnings: list[str] = field(default_factory=list[str])

    @cached_property
    def pairs(self) -> list[Pair]:
        """Return the results of baseline and winner on each row."""
        return [(row[0], row[1]) for row in self.rows]

    @cached_property
    def sent_pairs(self) -> list[Pair]:
        """Return the pairs, with the baseline on both sides of rows with which the change was not sent: a difference
        there is not due to it."""
        return [(a, b if was else a) for was, (a, b) in zip(self.sent, self.pairs, strict=True)]

    @property
    def is_judged(self) -> bool:
        """Return True if a language model scored. A source may then return a claim `gain` that corrects its scores."""
        return bool(getattr(self.task.metric, "needs_lm", False))

    def count_look(self, what: str, content: str) -> tuple[int, float]:
        """Record that the run is reported with external evidence, such as labels.

        A report with new evidence is another test of these rows.

        Args:
            what: kind of evidence.
            content: hash of it.

        Returns the number of other states of it reported before, and the remaining level.
        """
        assert self.record is not None
        store, event = self.record.store, f"{what}_looked_at"
        store.flush()
        known = [one.get(what) for one in self.record.read_events(event)]
        if content not in known:
            store.event(self.record.run_id, event, **{what: content})
        looks = known.index(content) if content in known else len(known)
        return looks, level_after([*self.earlier, *[what] * looks])

    @cached_property
    def clusters(self) -> list[Hashable]:
        """Return the keys of the rows. Rows with equal keys count once."""
        return [self.task.cluster_of(row[0].example) for row in self.rows]


#: Sections of a file, each tested by the source of claims with the same name.
TESTED_SECTIONS = ("targets", "constraints")


class ClaimSource(ABC):
    """A source of claims on the sealed rows of a run, created without arguments. guards: its claims guard others
    (`Kind.guards`), so that nothing is shown if it fails."""

    guards: ClassVar[bool] = False

    def check(self, task: Task) -> None:  # noqa: B027  (few sources have anything to check)
        """Check this source's section of a file, whenever the file is read. Raises SpecError with its location."""

    def perturbations(self, task: Task) -> Mapping[str, Perturbation]:
        """Return the perturbations under which baseline and winner also run each sealed row.

        `Result.perturbed` has their results under SOURCE.NAME, with the source's registered name.
        """
        return {}

    @abstractmethod
    def find(self, tested: Evidence) -> Sequence[Claim]:
        """Make the claims of a run when its report is built; none if its file requests none.

        An error becomes a warning in the report, because the test is paid for.
        """

    def warn(self, spec: Spec, rows: int) -> list[str]:
        """Return warnings, before a run, about claims that this number of sealed rows cannot show."""
        return []


def claim_sources() -> list[tuple[str, Callable[[], ClaimSource]]]:
    """Return the sources of all plugins, by name. Calling one loads it, which may raise PluginError."""
    known = plugins()
    return [(name, lambda name=name: known.get("claims", name)()) for name in known.names("claims")]


def usable_sources(spec: Spec) -> Iterator[tuple[str, ClaimSource]]:
    """Yield the sources that can be loaded, by name. For a source that cannot, raises PluginError if the file has a
    section of its name; otherwise the report warns that its claims are left out."""
    for name, load in claim_sources():
        try:
            yield name, load()
        except PluginError:
            if getattr(spec, name, None) is not None:
                raise


def check_by_sources(task: Task) -> None:
    """Check each source's section of a file. Raises SpecError, and PluginError as `usable_sources`."""
    for _, source in usable_sources(task.spec):
        source.check(task)


def find_perturbations(task: Task) -> dict[str, Perturbation]:
    """Return the perturbations of all sources. Raises PluginError as `usable_sources`."""
    sources = usable_sources(task.spec)
    return {f"{name}.{key}": one for name, source in sources for key, one in source.perturbations(task).items()}


def sealed_runs(task: Task) -> int:
    """Count the runs of a sealed row: each side unchanged, and under each perturbation."""
    return task.spec.tested_sides * (1 + len(find_perturbations(task)))

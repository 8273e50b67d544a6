"""The tested rows of a run, and sources of claims on them, which plugins add to (hook `register_claims`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from workbench.errors import PluginError
from workbench.plugins import plugins
from workbench.proof.claim import LEVEL, Claim
from workbench.proof.savings import Ceiling
from workbench.proof.sides import OrderEffect, Pair
from workbench.spec import Spec
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
        rows: of each row the results of baseline and winner, and of `best` where the file has targets; empty without a
            sealed test.
        evaluations: complete ones on val, by hash of the candidate.
        alpha: the level of a test on these rows.
        ceilings: by objective, the most that a row can cost.
        order_effects: effects of the order of the two sides.
    """

    task: Task
    winner: Workflow
    best: Workflow
    rows: Sequence[tuple[Result, ...]] = ()
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    alpha: float = LEVEL
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict[str, Ceiling])
    order_effects: Sequence[OrderEffect] = ()

    @cached_property
    def pairs(self) -> list[Pair]:
        """Baseline and winner on each row."""
        return [(row[0], row[1]) for row in self.rows]

    @cached_property
    def clusters(self) -> list[Hashable]:
        """Keys of the rows. Rows with equal keys count once."""
        return [self.task.cluster_of(row[0].example) for row in self.rows]


class ClaimSource(ABC):
    """A source of claims on the sealed rows of a run. It is made without arguments."""

    def check(self, task: Task) -> None:  # noqa: B027  (few sources have anything to check)
        """Check what a file asks of this source, whenever the file is read. Raises SpecError with its place."""

    def perturbations(self, task: Task) -> Mapping[str, Perturbation]:
        """Return the perturbations under which baseline and winner run each sealed row, too.

        `Result.perturbed` has their results as SOURCE.NAME, the source by the name that it is registered with.
        """
        return {}

    @abstractmethod
    def find(self, tested: Evidence) -> Sequence[Claim]:
        """Make the claims of a run, when its report is built; none if its file asks for none.

        What it raises becomes a warning in the report, as the test is paid for.
        """

    def warn(self, spec: Spec, rows: int) -> list[str]:
        """Warn before a run of claims that this number of sealed rows cannot show."""
        return []


def claim_sources() -> list[tuple[str, Callable[[], ClaimSource]]]:
    """The sources of all plugins, by name. Calling one loads it, which may raise PluginError."""
    known = plugins()
    return [(name, lambda name=name: known.get("claims", name)()) for name in known.names("claims")]


def check_by_sources(task: Task) -> None:
    """Check what a file asks of each source. Raises SpecError."""
    for _, load in claim_sources():
        with suppress(PluginError):  # the file can be used for what needs no claims
            load().check(task)


def find_perturbations(task: Task) -> dict[str, Perturbation]:
    """The perturbations of all sources. Raises PluginError for a source that cannot be loaded."""
    return {f"{name}.{key}": one for name, load in claim_sources() for key, one in load().perturbations(task).items()}


def sealed_runs(task: Task) -> int:
    """Count the runs that a sealed row takes: each side as it is, and under each perturbation."""
    return task.spec.tested_sides * (1 + len(find_perturbations(task)))

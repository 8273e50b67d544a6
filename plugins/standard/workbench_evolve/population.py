"""Individuals, islands, and the archive that keeps diverse ones."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench import Evaluation, Workflow
from workbench.workflow import learnable_addresses

#: Number of pseudo-rows with the parent's fitness, towards which a fitness is shrunk: few rows prove little.
PRIOR_ROWS = 8


@dataclass(frozen=True)
class Individual:
    """A workflow with its fitness and its results on the screening rows."""

    workflow: Workflow
    fitness: float
    screened: Evaluation


def compute_fitness(scores: Sequence[float], parent: float | None) -> float:
    """Return the mean score, shrunk towards the parent's fitness; without a parent, the plain mean."""
    if parent is None:
        return math.fsum(scores) / max(1, len(scores))
    return (math.fsum(scores) + PRIOR_ROWS * parent) / (len(scores) + PRIOR_ROWS)


def find_niche(workflow: Workflow) -> tuple[int, int, str]:
    """Return the archive cell: length of texts and number of demos (both in powers of two), and the other settings."""
    texts = demos = 0
    rest: list[Any] = []
    for address, kind in sorted(learnable_addresses(workflow).items()):
        value = workflow.get(address, None)
        if kind == "text":
            texts += len(value or "")
        elif isinstance(value, list):
            demos += len(value)
        elif value is not None and not isinstance(value, float):
            rest.append([address, value])
    return (texts // 64).bit_length(), demos.bit_length(), str(rest)


@dataclass
class Archive:
    """MAP-Elites (Mouret and Clune, arXiv 1504.04909): the best individual in each niche."""

    cells: dict[tuple[int, int, str], Individual] = field(default_factory=dict)

    def add(self, individual: Individual) -> None:
        here = find_niche(individual.workflow)
        kept = self.cells.get(here)
        if kept is None or individual.fitness > kept.fitness:
            self.cells[here] = individual


@dataclass
class Island:
    """A population of limited size that keeps its fittest members."""

    size: int
    members: list[Individual] = field(default_factory=list)

    @property
    def best(self) -> Individual:
        return self.members[0]

    def add(self, individual: Individual) -> None:
        if any(m.workflow == individual.workflow for m in self.members):
            return
        self.members.append(individual)
        self.members.sort(key=lambda m: -m.fitness)  # a stable sort: ties go to the older one
        del self.members[self.size :]

    def tournament(self, rng: random.Random) -> Individual:
        """Return the fitter of two random members."""
        return max(rng.choices(self.members, k=2), key=lambda m: m.fitness)

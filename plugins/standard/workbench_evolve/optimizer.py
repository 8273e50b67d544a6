"""Population search over workflows: islands, an archive of diverse individuals, and adaptive choice of operators.

Sources: SE-Agent (arXiv 2508.02085: revise, recombine, refine), SwarmAgentic (arXiv 2506.15672: a swarm of particles,
see `swarm`), FM Agent (2025: islands with migration), MAP-Elites (arXiv 1504.04909), EvoGit (2025: lineage).

Departures:

- They are operators and containers of one search under one budget.
- A child is first compared with its rival (its parent; for a particle its best position) on the same few training rows,
  and is evaluated on val only if it is not worse: most children are not worth a pass over val.
- Operators are drawn by their success rates (Thompson sampling), since the best operator depends on the task and the
  proposer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic import Field

from workbench import Optimizer, Patch, Study, Workflow
from workbench.errors import SpecError
from workbench.study import RandomTrial
from workbench.task import Example, Space
from workbench.workflow import learnable_addresses, text_at
from workbench_evolve.operators import Breeder, list_operators
from workbench_evolve.population import Archive, Individual, Island, compute_fitness
from workbench_evolve.swarm import Particle
from workbench_kit.prompting import Proposer

#: Number of islands, and of individuals on each. Ours: small because a budget pays for a few hundred children.
ISLANDS, POPULATION = 2, 4
#: Turns of an island between migrations of its best individual to the next island.
MIGRATION = 8
#: Share of parents drawn from the archive of diverse individuals.
EXPLORATION = 0.5


@dataclass
class Credit:
    """Successes and failures of each operator; the next one is drawn by Thompson sampling (uniform prior)."""

    won: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)

    def choose(self, names: Sequence[str], rng: random.Random) -> str:
        return max(names, key=lambda n: rng.betavariate(1 + self.won.get(n, 0), 1 + self.lost.get(n, 0)))

    def book(self, name: str, success: bool) -> None:
        book = self.won if success else self.lost
        book[name] = book.get(name, 0) + 1


class Evolve(Optimizer):
    """Evolves workflows: draws settings from the search space, and has a proposer revise, recombine and refine texts.

    Without a `search:` section, it draws demos for every node that accepts them.
    """

    trials: int = Field(200, ge=1, le=100_000, description="maximum children; the budget may end the search earlier")
    batch: int = Field(
        16,
        ge=2,
        le=256,
        description="training rows that compare a child with its parent; fewer if few calls remain",
    )
    proposals: bool = Field(True, description="let the proposer write instructions; false: search only the space")
    temperature: float = Field(0.9, ge=0, le=2, description="of the proposer")
    guided: bool = Field(
        False, description="spend edits on the nodes that decide failures, found by repeating failed rows"
    )

    async def optimize(self, study: Study) -> Workflow:
        rows = _screening_rows(study, self.batch)
        if not rows or not study.affords(study.best, rows):
            return study.best
        breeder = Breeder(study, study.space(), Proposer(study, self.temperature), self.guided)
        ways = list_operators(breeder, self.proposals and not (breeder.space.domains and _texts_in_vain(study)))
        first = await self._adam(study, rows)
        islands, archive, credit = [Island(POPULATION, [first]) for _ in range(ISLANDS)], Archive(), Credit()
        archive.add(first)
        swarm: dict[int, Particle] = {}  # one per island, at the position of its first move
        for number in range(self.trials if ways else 0):
            here, rng = number % ISLANDS, study.rng
            parent = self._parent(rng, islands[here], archive)
            pool = sorted({m.workflow.hash: m for i in islands for m in i.members}.values(), key=lambda m: -m.fitness)
            made, name, particle = (_richest(study, breeder.space) if number == 0 else None), None, None
            if made is None:
                name = credit.choose(list(ways), rng)
                if name == "move":
                    particle = swarm.setdefault(here, Particle(parent, parent))
                    parent = particle.position
                made = await ways[name](particle or parent, pool, number)
            child, rival = self._child(parent, made), particle.best if particle else parent
            if child is not None and not study.affords(child, rows):
                break
            born = await self._evaluate(study, child, rival, rows) if child is not None else None
            if name is not None:  # the richest start is not the work of an operator
                credit.book(name, born is not None and born.screened.score > rival.screened.score)
            if born is not None:
                islands[here].add(born)
                archive.add(born)
                if particle and made:
                    particle.arrive(born, made[0])
            if (number // ISLANDS + 1) % MIGRATION == 0:
                islands[(number + 1) % ISLANDS].add(islands[here].best)
        return study.best

    async def _adam(self, study: Study, rows: Sequence[Example]) -> Individual:
        start = study.best
        found = Individual(start, 0.0, await study.evaluate(start, rows, traces=True))
        return replace(found, fitness=compute_fitness(self._scores(study, found), None))

    def _parent(self, rng: random.Random, island: Island, archive: Archive) -> Individual:
        if rng.random() < EXPLORATION:
            return rng.choice(list(archive.cells.values()))
        return island.tournament(rng)

    def _child(self, parent: Individual, made: tuple[dict, str] | None) -> Workflow | None:
        """Return the parent with the changes; None if nothing changes, or the nodes reject the changes."""
        if not made or not made[0]:
            return None
        try:
            child = parent.workflow.patched(Patch(made[0], note=made[1]))
        except (SpecError, KeyError):  # an absent optional node has no settings
            return None
        return None if child == parent.workflow else child

    async def _evaluate(self, study: Study, child: Workflow, rival: Individual, rows: Sequence[Example]) -> Individual:
        """Evaluate a child on the screening rows and, if it is not worse there than its rival, on val."""
        found = await study.evaluate(child, rows, traces=True)
        born = Individual(child, 0.0, found)
        if found.score >= rival.screened.score and study.affords(child):
            await study.evaluate(child, race=True)
        return Individual(child, compute_fitness(self._scores(study, born), rival.fitness), found)

    def _scores(self, study: Study, individual: Individual) -> list[float]:
        """Return all scores of an individual: on the screening rows and, if complete, on val."""
        whole = study.known(individual.workflow)
        return [*individual.screened.scores, *(whole.scores if whole else ())]


def _texts_in_vain(study: Study) -> bool:
    """Return True if an earlier search of this run wrote texts and the best workflow uses none: further rewriting is
    then not worth its calls. Texts listed under `search:` do not count."""
    first = next((one.workflow for one in study.progress.complete.values()), study.best)
    texts = _texts(study, first)

    def is_written(workflow: Workflow) -> bool:
        found = _texts(study, workflow)
        return any(found[address] != texts[address] for address in found.keys() & texts.keys())

    return not is_written(study.best) and any(map(is_written, study.progress.tried.values()))


def _texts(study: Study, workflow: Workflow) -> dict[str, str]:
    listed = tuple(f"{address}." for address in study.domains)
    found = learnable_addresses(workflow, "text")
    return {one: text_at(workflow, one) for one in found if not f"{one}.".startswith(listed)}


def _richest(study: Study, space: Space) -> tuple[dict, str] | None:
    """Return the start with most demos, often the largest improvement; None if the space has no demos."""
    rich = space.starts(study.best)[1:]
    return (space.suggest(RandomTrial(study.rng, rich[0]), study.best), "the richest start") if rich else None


def _screening_rows(study: Study, most: int) -> list[Example]:
    """Draw rows from train, few enough for about forty children with the remaining calls."""
    rows, calls = list(study.train), study.remaining() / max(1, study.planned_calls(study.best, study.train[:1]))
    count = int(min(most, max(4, calls / 40)))
    return rows if len(rows) <= count else study.rng.sample(rows, count)

"""The operators that make a child. Each returns (values to set, note), or None if it does not apply.

`draw`, `immigrate` and `cross` need no language model; the others ask the proposer. From SE-Agent (arXiv 2508.02085):
`revise` one individual into another strategy after its failures, `recombine` two by their successes and failures,
`refine` with the lessons of the pool. From SwarmAgentic (arXiv 2506.15672): `move` a particle (see `swarm`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench import Study, Workflow
from workbench.study import RandomTrial, score_of
from workbench.task import Space
from workbench.workflow import learnable_addresses, node_at, text_at, text_role
from workbench_evolve.population import Individual
from workbench_evolve.swarm import Particle, diff_texts
from workbench_kit.credit import blame_nodes
from workbench_kit.prompting import Proposer, describe, message_at, show_results, wrap_in_tags

#: Maximum number of characters of results in a prompt.
CHARS = 6000

Child = tuple[dict[str, Any], str] | None


@dataclass(frozen=True)
class Breeder:
    """The operators and their shared state. `pool`: the individuals of all islands, fittest first.

    guided: prefer nodes that decide the parent's failures (`Study.attribution`).
    """

    study: Study
    space: Space
    proposer: Proposer
    guided: bool = False

    @property
    def texts(self) -> list[str]:
        return list(learnable_addresses(self.study.workflow, "text"))

    async def _text_of(self, parent: Individual) -> tuple[str, str]:
        address = await self._choose(self.texts, parent)
        return address, text_at(parent.workflow, address)

    async def _choose(self, addresses: Sequence[str], parent: Individual) -> str:
        if not self.guided:
            return self.study.rng.choice(addresses)
        rows = [r.example for r in parent.screened.results]
        return (await blame_nodes(self.study, parent.workflow, rows)).choose(addresses, self.study.rng)

    async def draw(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        """Redraw one setting of the search space."""
        address = await self._choose(list(self.space.domains), parent)
        space = Space({address: self.space.domains[address]}, self.space.train, self.space.targets, self.space.seed)
        return space.suggest(RandomTrial(self.study.rng), parent.workflow), f"drew {address}"

    async def immigrate(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        """Redraw every setting of the search space, to reach distant workflows."""
        return self.space.suggest(RandomTrial(self.study.rng), parent.workflow), "drew all"

    async def cross(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        """Take each setting in which two individuals differ from one of them, with equal probability."""
        other = self._other(parent, pool)
        if other is None:
            return None
        taken = {
            a: v for a, v in _differences(parent.workflow, other.workflow).items() if self.study.rng.random() < 0.5
        }
        return taken, f"crossed with {other.workflow.hash[:8]}"

    async def revise(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        address = await self._choose(self.texts, parent)
        evidence = show_results(parent.screened.results, CHARS)
        advice = "Mend the failures. Where small changes will not do, take another approach."
        made = await self.proposer.rewrite(parent.workflow, address, replica, evidence=evidence, advice=advice)
        return (made, "revised") if made else None

    async def recombine(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        address, text = await self._text_of(parent)
        other = self._other(parent, [m for m in pool if text_at(m.workflow, address) != text])
        if other is None:
            return None
        shown = "\n\n".join(
            f"Text {letter}, score {one.fitness:.2f}:\n{wrap_in_tags(text_at(one.workflow, address))}"
            f"{_course(one, rival, CHARS // 4)}"
            for letter, one, rival in (("A", parent, other), ("B", other, parent))
        )
        what = text_role(parent.workflow, address).what
        task = (
            f"Here is {what} in two versions, each of which does well on some tasks. Another language model reads it."
            f"\n\n{describe(node_at(parent.workflow, address))}\n\n{shown}\n\nWrite one text in their place, still "
            f"{what}, that does right what either does right, and mends what neither does. Answer with the text alone, "
            "between <prompt> and </prompt>."
        )
        made = await self.proposer.prompt([{"role": "user", "content": task}], parent.workflow, address, replica)
        return None if made is None else ({address: made}, f"recombined with {other.workflow.hash[:8]}")

    async def refine(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        address = await self._choose(self.texts, parent)
        best = pool[0]
        others = [m for m in pool if m.workflow != parent.workflow and text_at(m.workflow, address)][:4]
        advice = ""
        if text_at(best.workflow, address) != text_at(parent.workflow, address):
            advice = f"The best instruction so far:\n{wrap_in_tags(text_at(best.workflow, address))}"
        made = await self.proposer.rewrite(
            parent.workflow,
            address,
            replica,
            advice=advice,
            evidence=show_results(parent.screened.results, CHARS // 2),
            tried=[(message_at(m.workflow, address), m.fitness) for m in others],
        )
        return (made, "refined") if made else None

    async def move(self, particle: Particle, pool: Sequence[Individual], replica: int) -> Child:
        """Return a particle's next position, or None if the proposer repeats a failed move.

        Settings other than texts come from the position, the particle's best or the global best, with equal
        probability.
        """
        address = await self._choose(self.texts, particle.position)
        here, best = particle.position, pool[0]
        whose = self.study.rng.choice((here, particle.best, best)).workflow
        texts = learnable_addresses(whose, "text")
        settings = {a: v for a, v in _differences(here.workflow, whose).items() if a not in texts}
        made = await self.proposer.rewrite(
            here.workflow,
            address,
            replica,
            advice=particle.advice(address, best),
            evidence=show_results(here.screened.results, CHARS // 2),
        )
        moves = [diff_texts(one, text_at(here.workflow, one), new) for one, new in made.items()]
        if not moves or (len(moves) == 1 and particle.has_failed(moves[0])):
            return None
        return {**settings, **made}, "moved"

    def _other(self, parent: Individual, pool: Sequence[Individual]) -> Individual | None:
        others = [m for m in pool if m.workflow != parent.workflow]
        return self.study.rng.choice(others) if others else None


Operator = Callable[
    [Any, Sequence[Individual], int], Awaitable[Child]
]  # `move` receives a particle, the others a parent


def list_operators(breeder: Breeder, proposals: bool) -> Mapping[str, Operator]:
    """Return the applicable operators, by name."""
    found: dict[str, Operator] = {}
    if breeder.space.domains:
        found |= {"draw": breeder.draw}
        if len(breeder.space.domains) > 1:
            found |= {"immigrate": breeder.immigrate}
    if breeder.texts and proposals:
        found |= {
            "revise": breeder.revise,
            "recombine": breeder.recombine,
            "refine": breeder.refine,
            "move": breeder.move,
        }
    return found | {"cross": breeder.cross} if found else found


def _course(one: Individual, rival: Individual, limit: int) -> str:
    """Return excerpts of an individual's results on the shared screening rows: wins over the other one, then failures,
    first those where the other one succeeded. At most `limit` characters of each."""
    both = zip(one.screened.results, rival.screened.results, strict=False)
    pairs = [(r, s) for r, s in both if r.score is not None and s.score is not None]
    ahead = [r for r, s in pairs if score_of(r) > score_of(s)]
    lost = sorted((p for p in pairs if score_of(p[0]) < 1.0), key=lambda p: score_of(p[0]) - score_of(p[1]))
    parts = [("Right where the other one is wrong", ahead), ("Wrong", [r for r, _ in lost])]
    return "".join(f"\n{title}:\n{text}" for title, rows in parts if (text := show_results(rows, limit)))


def _differences(one: Workflow, other: Workflow) -> dict[str, Any]:
    """Return the other's values of all learnable settings that both have and that differ."""
    found = {}
    for address in learnable_addresses(one):
        value = other.get(address, None)
        if value is not None and value != one.get(address, None):
            found[address] = value
    return found

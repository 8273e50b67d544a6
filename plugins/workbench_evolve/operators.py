"""How a child is made. Each operator gives (what to set, note), or None where it has nothing to offer.

`draw` and `cross` need no language model. The others ask the proposer, after SE-Agent (arXiv 2508.02085): `revise` one
individual into a different strategy from its failures, `recombine` two, `refine` with what the whole pool has learned;
`refine` also stands for the pull to the personal and the global best of SwarmAgentic (arXiv 2506.15672).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench import Study, Workflow
from workbench.nodes import learnable, node_at, text_at
from workbench.propose import Proposer, describe, rewrite_request, show_results, tagged
from workbench.search import RandomSuggests, Space
from workbench_evolve.population import Individual

Child = tuple[dict[str, Any], str] | None


@dataclass(frozen=True)
class Breeder:
    """What the operators share. pool: individuals of all islands, the fittest first."""

    study: Study
    space: Space
    proposer: Proposer
    shown: int

    @property
    def texts(self) -> list[str]:
        return list(learnable(self.study.workflow, "text"))

    def _text_of(self, parent: Individual) -> tuple[str, str]:
        address = self.study.rng.choice(self.texts)
        return address, text_at(parent.workflow, address)

    async def draw(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        """Draw one setting of the search space anew."""
        address = self.study.rng.choice(list(self.space.domains))
        space = Space({address: self.space.domains[address]}, self.space.train, self.space.targets, self.space.seed)
        return space.suggest(RandomSuggests(self.study.rng), parent.workflow), f"drew {address}"

    async def immigrate(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        """Draw every setting of the search space anew, whatever the parent has: what no small step leads to."""
        return self.space.suggest(RandomSuggests(self.study.rng), parent.workflow), "drew all"

    async def cross(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        """Each setting in which two individuals differ from either one, with equal chance."""
        other = self._other(parent, pool)
        if other is None:
            return None
        taken = {
            a: v for a, v in _differences(parent.workflow, other.workflow).items() if self.study.rng.random() < 0.5
        }
        return taken, f"crossed with {other.workflow.hash[:8]}"

    async def revise(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        address, text = self._text_of(parent)
        evidence = show_results(parent.screened.results, self.shown)
        request = rewrite_request(node_at(parent.workflow, address), text, evidence=evidence,
                                  advice="Mend the failures. Where small changes will not do, take another approach.")  # fmt: skip
        made = await self.proposer.prompt(request, replica)
        return None if made is None else ({address: made}, "revised")

    async def recombine(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        address, text = self._text_of(parent)
        other = self._other(parent, [m for m in pool if text_at(m.workflow, address) != text])
        if other is None:
            return None
        shown = "\n\n".join(f"Score {m.fitness:.2f}:\n{tagged(text_at(m.workflow, address))}" for m in (parent, other))
        task = (
            "Two instructions for one step of a workflow each do well on some tasks. Another language model follows "
            f"them.\n\n{describe(node_at(parent.workflow, address))}\n\n{shown}\n\nWrite one instruction with what is "
            "good in both. Answer with the instruction alone, between <prompt> and </prompt>."
        )
        made = await self.proposer.prompt([{"role": "user", "content": task}], replica)
        return None if made is None else ({address: made}, f"recombined with {other.workflow.hash[:8]}")

    async def refine(self, parent: Individual, pool: Sequence[Individual], replica: int) -> Child:
        address, text = self._text_of(parent)
        best = pool[0]
        others = [m for m in pool if m.workflow != parent.workflow and text_at(m.workflow, address)][:4]
        advice = ""
        if best.workflow != parent.workflow:
            advice = f"The best instruction so far:\n{tagged(text_at(best.workflow, address))}"
        request = rewrite_request(
            node_at(parent.workflow, address), text, advice=advice, evidence=show_results(parent.screened.results, self.shown // 2),
            tried=[(text_at(m.workflow, address), m.fitness) for m in others],
        )  # fmt: skip
        made = await self.proposer.prompt(request, replica)
        return None if made is None else ({address: made}, "refined")

    def _other(self, parent: Individual, pool: Sequence[Individual]) -> Individual | None:
        others = [m for m in pool if m.workflow != parent.workflow]
        return self.study.rng.choice(others) if others else None


Operator = Callable[[Individual, Sequence[Individual], int], Awaitable[Child]]


def operators(breeder: Breeder, proposals: bool) -> Mapping[str, Operator]:
    """Those that can do anything here, by name."""
    found: dict[str, Operator] = {}
    if breeder.space.domains:
        found |= {"draw": breeder.draw}
        if len(breeder.space.domains) > 1:
            found |= {"immigrate": breeder.immigrate}
    if breeder.texts and proposals:
        found |= {"revise": breeder.revise, "recombine": breeder.recombine, "refine": breeder.refine}
    return found | {"cross": breeder.cross} if found else found


def _differences(one: Workflow, other: Workflow) -> dict[str, Any]:
    """The other's values of all learnable settings in which it differs. A value that only one has is no choice."""
    found = {}
    for address in learnable(one):
        value = other.get(address, None)
        if value is not None and value != one.get(address, None):
            found[address] = value
    return found

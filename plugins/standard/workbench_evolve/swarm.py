"""Particles over language: a position, the best position so far, the last move, and the failed moves.

Source: SwarmAgentic (arXiv 2506.15672), x' = x + v' with v' = c_f r_f F(v) + c_p r_p (p* - x) + c_g r_g (g - x): F
repairs the failures of the last move, p* is the particle's best position, g the swarm's. Here x is a workflow, and v
the sentences that a move adds to and removes from a text. Departures, with reasons, are in the README.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from workbench.base.text import short
from workbench.workflow import text_at
from workbench_evolve.population import Individual
from workbench_kit.prompting import wrap_in_tags

#: Number of failed moves that a particle remembers. On few rows, some fail by chance and deserve another try.
REMEMBERED = 6


@dataclass(frozen=True)
class Move:
    """A velocity: the sentences that one text gained and lost, and the scores on the same rows before and after."""

    address: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    before: float = 0.0
    after: float = 0.0

    @property
    def helped(self) -> bool:
        return self.after > self.before

    def same(self, other: Move) -> bool:
        """Return True if both moves make the same change, in any order of sentences."""
        return (self.address, set(self.added), set(self.removed)) == (
            other.address,
            set(other.added),
            set(other.removed),
        )

    def told(self) -> str:
        """Return the move as one line for the proposer."""
        parts = [
            f"{what} {short(' '.join(s), 200)}" for what, s in (("added", self.added), ("took out", self.removed)) if s
        ]
        return f"- score {self.after:.2f} after {self.before:.2f}: {'; '.join(parts) or 'another order'}"


def diff_texts(address: str, old: str, new: str) -> Move:
    """Return the move x' - x: the sentences that the new text adds and removes."""
    here, there = _sentences(old), _sentences(new)
    return Move(address, tuple(s for s in there if s not in here), tuple(s for s in here if s not in there))


def _sentences(text: str) -> list[str]:
    return [s.strip() for s in re.split(r"(?<=[.!?])\s+|\n+", text) if s.strip()]


@dataclass
class Particle:
    """A particle of the swarm. It follows its moves, even downhill; `best` keeps the best position."""

    position: Individual
    best: Individual
    last: Move | None = None
    failed: list[Move] = field(default_factory=list)  # the newest last

    def has_failed(self, move: Move) -> bool:
        return any(move.same(old) for old in self.failed)

    def arrive(self, born: Individual, changed: Collection[str]) -> None:
        """Move to a new position. A change of one text that scores no better on the same rows is a failed move; if more
        than one setting changed, none is recorded. An equal score replaces the best, as in the paper's code."""
        self.last = None
        if len(changed) == 1:
            (address,) = changed
            made = diff_texts(address, text_at(self.position.workflow, address), text_at(born.workflow, address))
            self.last = replace(made, before=self.position.screened.score, after=born.screened.score)
            if not self.last.helped and not self.has_failed(self.last):
                self.failed = [*self.failed, self.last][-REMEMBERED:]
        self.position = born
        if born.fitness >= self.best.fitness:
            self.best = born

    def advice(self, address: str, globally: Individual) -> str:
        """Return the three terms of a text's move, for the proposer: effects of the last moves, p* - x, and g - x."""
        here, parts = text_at(self.position.workflow, address), []
        failed = [m.told() for m in self.failed if m.address == address]
        if failed:
            parts.append(
                "These changes did not help. Do not make them again, nor the same in other words:\n" + "\n".join(failed)
            )
        if self.last and self.last.helped and self.last.address == address:
            parts.append(f"The last change helped, go on from there:\n{self.last.told()}")
        shown = {here}
        for whose, mark in (("The best one on the way to this one", self.best), ("The best one of all", globally)):
            text = text_at(mark.workflow, address)
            if text and text not in shown:
                shown.add(text)
                parts.append(f"{whose} (score {mark.fitness:.2f}):\n{wrap_in_tags(text)}")
        if len(shown) > 1:
            parts.append("Take over what is better there and would mend the failures above, in its own words.")
        return "\n\n".join(parts)

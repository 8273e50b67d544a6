"""Coordinate hill climbing over the search space."""

from __future__ import annotations

from pydantic import Field

from workbench import Optimizer, Patch, Study, Workflow
from workbench.study import RandomTrial


class Hillclimb(Optimizer):
    """Redraws one setting at a time, starting from the best candidate so far, and keeps what scores better."""

    steps: int = Field(30, ge=1, description="candidates at most; the budget may end it before")

    async def optimize(self, study: Study) -> Workflow:
        space, draw = study.space(), RandomTrial(study.rng)
        addresses = list(space.domains)
        for step in range(self.steps):
            address = addresses[step % len(addresses)]
            values = space.suggest(draw, study.best)
            if address not in values:
                continue  # its condition does not hold here
            candidate = study.best.patched(Patch({address: values[address]}, note=f"another {address}"))
            if not study.affords(candidate):
                break
            await study.evaluate(candidate, race=True)
        return study.best

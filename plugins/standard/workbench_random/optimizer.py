"""Random search: draw candidates from the search space, keep the best on val.

This is the smallest useful optimizer, and the template that the docs cite. See `docs/how-to/own-optimizer.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from workbench import Example, Optimizer, Patch, Study, Workflow
from workbench.study import RandomTrial


class Random(Optimizer):
    """Draws every setting of the search space independently and uniformly.

    Without a `search:` section it draws labelled demos for every node that takes them. It uses no proposer, so any
    optimizer with one must beat it at the same budget.
    """

    trials: int = Field(
        50, ge=1, le=10_000, description="maximum number of candidates; the budget may end the search earlier"
    )
    race: bool = Field(False, description="stop candidates early that are clearly worse than the best so far")

    def max_rows(self, train: Sequence[Example], val: Sequence[Example]) -> int:
        return self.trials * len(val)

    async def optimize(self, study: Study) -> Workflow:
        space = study.space()
        draw = RandomTrial(study.rng)
        for trial in range(self.trials):
            values = space.suggest(draw, study.workflow)
            candidate = study.workflow.patched(Patch(values, note=f"random draw {trial}"))
            if not study.affords(candidate):
                break  # a part of an evaluation is paid for but cannot win
            await study.evaluate(candidate, race=self.race)
        return study.best

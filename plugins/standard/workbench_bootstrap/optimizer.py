"""Few-shot demos for every node that takes them.

Sources: BootstrapFewShot and BootstrapFewShotWithOptuna of DSPy (Khattab et al., arXiv 2310.03714, section 3.4) and
retrieval of the nearest demos (Liu et al., arXiv 2101.06804). Departures: the number of demos, their source and whether
they are retrieved are searched together instead of fixed, since their value depends on the task; and losers are
stopped early, which saves calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from workbench import Example, Optimizer, Patch, Study, Workflow
from workbench.workflow import learnable_addresses
from workbench_kit.prompting import MAX_DEMOS, START_DEMOS, DemoSearch, make_searcher, run_for_successes, tell


class Bootstrap(Optimizer):
    """Searches for demos: labelled rows, the workflow's own successful steps, or the nearest ones for each input.

    Each node chooses a source, a number of demos and one of several seeded draws; Optuna's TPE learns which choices
    pay.
    """

    max_demos: int | None = Field(
        None,
        ge=1,
        le=MAX_DEMOS,
        description=f"maximum number of demos; by default {START_DEMOS}, and twice as many each time that the best "
        "candidate shows all of them",
    )
    trials: int = Field(
        30, ge=1, le=1000, description="maximum number of candidates; the budget may end the search earlier"
    )
    samples: int = Field(6, ge=1, le=64, description="number of random samples of each kind of demos")
    self_generated: bool = Field(
        True,
        description="run the workflow on train and use the steps of its successes; costs one pass over train, which "
        "is left out where the labels tell as much",
    )
    threshold: float = Field(1.0, gt=0, le=1, description="least score of a success")
    nearest: bool = Field(True, description="also try showing the demos nearest to each input")
    race: bool = Field(True, description="stop candidates early that are clearly worse than the best so far")

    def reads_search(self) -> bool:
        return False

    def max_rows(self, train: Sequence[Example], val: Sequence[Example]) -> int:
        return self.trials * len(val) + self.self_generated * len(train)

    async def optimize(self, study: Study) -> Workflow:
        if not learnable_addresses(study.workflow, "demos") or not study.train:
            return study.best
        demos = DemoSearch(study, samples=self.samples, most=self.max_demos or START_DEMOS)
        own = await run_for_successes(study, study.workflow, self.threshold) if self.self_generated else {}
        demos.fill(own, self.nearest)
        searcher = make_searcher(study)
        for start in demos.starts().values():
            searcher.enqueue_trial(start)
        starts = len({source for by_source in demos.pools.values() for source in by_source})
        tried = dict[str, dict[str, Any]]()
        misses = 0
        for _ in range(self.trials * 4):
            trial = searcher.ask()
            values, note = demos.suggest(trial)
            candidate = study.workflow.patched(Patch(values, note=note))
            if candidate.hash in tried:
                known = study.known(candidate)
                tell(searcher, trial, known)
                misses += 1
                if misses >= 20:
                    break
                continue
            if len(tried) >= self.trials or not study.affords(candidate):
                break
            tried[candidate.hash] = trial.params
            tell(searcher, trial, await study.evaluate(candidate, race=self.race))
            if self.max_demos is None and len(tried) >= starts:
                if more := demos.widen(tried.get(study.best.hash, {})):
                    searcher.enqueue_trial(more)
        return study.best

"""The simplest optimizer that uses feedback: show results, ask for a better instruction, keep the best.

`fgo` runs it on each part of the training rows; on all rows at once it is the baseline of `fgo`. No source.
"""

from __future__ import annotations

from pydantic import Field

from workbench import Optimizer, Patch, Study, Workflow
from workbench.kit.prompting import Proposer, rewrite_request, show_results
from workbench.workflow import learnable_addresses

#: Characters of results in a prompt: so many that `batch` alone decides what is shown.
CHARS = 100_000


class Rewrite(Optimizer):
    """Has a language model (role `proposer`) rewrite the instructions, one node at a time, after seeing its results.

    A round scores the best workflow on the training rows, asks for `width` instructions, and tries each on val.
    """

    powers = {}

    rounds: int = Field(6, ge=1, le=1000, description="rounds at most")
    width: int = Field(2, ge=1, le=32, description="number of instructions per round")
    patience: int = Field(3, ge=1, le=1000, description="rounds without a better workflow before it ends")
    batch: int | None = Field(16, ge=1, description="number of random train rows shown per round; null: all")
    temperature: float = Field(0.8, ge=0, le=2, description="of the proposer")
    guided: bool = Field(
        False, description="spend edits on the nodes that decide failures, found by repeating failed rows"
    )

    def reads_search(self) -> bool:
        return False

    async def optimize(self, study: Study) -> Workflow:
        addresses = list(learnable_addresses(study.workflow, "text"))
        misses = 0
        rows = study.train[: self.batch] if self.batch is not None else study.train
        for turn in range(self.rounds if addresses and rows else 0):
            if misses >= self.patience or not study.affords(study.best, rows):
                break
            before = study.best
            address = addresses[turn % len(addresses)]
            if self.guided and len(addresses) > 1:
                address = (await study.attribution(study.best, rows)).choose(addresses, study.rng)
            await self._round(study, address, turn)
            misses = misses + 1 if study.best == before else 0
        return study.best

    async def _round(self, study: Study, address: str, turn: int) -> None:
        best = study.best
        rows = list(study.train)
        if self.batch is not None and self.batch < len(rows):
            rows = study.rng.sample(rows, self.batch)
        found = await study.evaluate(best, rows, traces=True)
        evidence = show_results(found.results, CHARS)
        request = rewrite_request(best, address, evidence=evidence)
        seen = list[str]()
        for number in range(self.width):
            proposer = Proposer(study, self.temperature)
            made = await proposer.prompt(request, best, address, turn * self.width + number, seen)
            if made is None:
                continue
            seen.append(made)
            candidate = best.patched(Patch({address: made}, note=f"rewritten, round {turn + 1}"))
            if not study.affords(candidate):
                return
            await study.evaluate(candidate, race=True)

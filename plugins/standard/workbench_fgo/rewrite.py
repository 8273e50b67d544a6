"""The simplest optimizer that uses feedback: show results, ask for a better instruction, keep the best.

`fgo` runs it on each part of the training rows. On all rows at once it is the baseline of `fgo`. No source.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import fmean

from pydantic import Field

from workbench import Optimizer, Patch, Study, Workflow
from workbench.workflow import learnable_addresses
from workbench_kit.credit import blame_nodes
from workbench_kit.prompting import Proposer, message_at, order_texts, show_results

#: Maximum number of characters of results in a prompt: large enough for `batch` alone to decide what is shown.
CHARS = 100_000
#: Number of texts of earlier rounds in a prompt.
LESSONS = 4


class Rewrite(Optimizer):
    """Has a language model (role `proposer`) rewrite the instructions, one node at a time, from the node's results.

    A round scores the best workflow on the training rows, asks for `width` instructions, and tries each on val.
    """

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
        learns = bool(learnable_addresses(study.workflow, "text"))
        turns, tried = Counter[str](), defaultdict[str, dict[str, float]](dict)
        misses = 0
        rows = study.train[: self.batch] if self.batch is not None else study.train
        for turn in range(self.rounds if learns and rows else 0):
            if misses >= self.patience or not study.affords(study.best, rows):
                break
            before = study.best
            await self._round(study, turns, tried, turn)
            misses = misses + 1 if study.best == before else 0
        return study.best

    async def _round(self, study: Study, turns: Counter[str], tried: dict[str, dict[str, float]], turn: int) -> None:
        """Rewrite one text: among those with the fewest turns, the one in most failures.

        tried: the messages of earlier rounds by address, with their scores on val. A candidate that was stopped early
        gets the best score plus its difference on the rows it had. Adds this round's messages.
        """
        best = study.best
        rows = list(study.train)
        if self.batch is not None and self.batch < len(rows):
            rows = study.rng.sample(rows, self.batch)
        found = await study.evaluate(best, rows, traces=True)
        evidence = show_results(found.results, CHARS)
        addresses = order_texts(best, found.results)
        address = min(addresses, key=lambda one: turns[one])
        if self.guided and len(addresses) > 1:
            address = (await blame_nodes(study, best, rows)).choose(addresses, study.rng)
        turns[address] += 1
        seen, earlier = [*tried[address]], [*tried[address].items()][-LESSONS:]
        for number in range(self.width):
            proposer, replica = Proposer(study, self.temperature), turn * self.width + number
            made = await proposer.rewrite(best, address, replica, evidence=evidence, tried=earlier, made=seen)
            if not made:
                continue
            seen += made.values()
            candidate = best.patched(Patch(made, note=f"rewritten, round {turn + 1}"))
            if not study.affords(candidate):
                return
            scored, known = await study.evaluate(candidate, race=True), study.known(best)
            if known is not None:
                gain = fmean(a - b for a, b in zip(scored.scores, known.scores, strict=False))
                tried[address][message_at(candidate, address)] = max(0.0, known.score + gain)

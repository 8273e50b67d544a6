"""Fine-grained optimization: divide the training rows, optimize on each part, merge progressively.

Source: FGO (arXiv 2505.03973). It does not give the number of parts, the fan-in or the selection rule: ours
follow. Departures: a merge must not be worse, on rows of all its parts, than the best of its inputs, because
an unguarded merge can lose what both had learned; and the last merge must win on val like any candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from workbench import Optimizer, Study, Workflow
from workbench.errors import SpecError, suggest
from workbench.study import make_optimizer
from workbench.task import Example
from workbench_fgo.divide import split_at_random, split_by_group
from workbench_fgo.merge import merge_workflows
from workbench_kit.prompting import Proposer

#: Number of workflows in one merge, and of rows that it is tested on. Ours: the paper gives neither.
FAN_IN, GUARD_ROWS = 2, 16
#: Share of the remaining budget for all parts together; the rest pays for merges.
SHARE = 0.6
#: Attempts at a merge that is not worse than its inputs.
ATTEMPTS = 2


@dataclass(frozen=True)
class Module:
    """A workflow optimized on some of the training rows. gain: its score minus that of the start, on such rows."""

    workflow: Workflow
    rows: list[Example]
    gain: float = 0.0


class Fgo(Optimizer):
    """Divides the training rows, runs an optimizer on each part, and merges the results step by step.

    Prompts of the optimizing language model stay small however many rows there are, since each sees one part only.
    """

    optimizer: str | dict[str, dict[str, Any]] = Field(
        {"rewrite": {"width": 1}}, description="the optimizer for each part, as under `optimize:`"
    )
    size: int = Field(12, ge=1, description="maximum number of train rows per part")
    by: str | None = Field(None, description="data field by whose values rows are divided; default: at random")
    rounds: int = Field(
        3, ge=1, le=100, description="divisions of the training rows, each starting from the best, while calls are left"
    )
    temperature: float = Field(0.8, ge=0, le=2, description="of the proposer when it merges")

    @field_validator("optimizer")
    @classmethod
    def _known(cls, value: Any) -> Any:
        make_optimizer(value)
        return value

    def reads_search(self) -> bool:
        return make_optimizer(self.optimizer).reads_search()

    def missing(self, workflow: Workflow) -> str | None:
        return make_optimizer(self.optimizer).missing(workflow)

    async def ready(self, study: Study) -> None:
        if self.by is not None and study.train and not any(self.by in row for row in study.train):
            raise SpecError(
                f"no training row has the field '{self.by}'",
                path=("by",),
                hint=suggest(self.by, study.train[0].fields),
            )
        await make_optimizer(self.optimizer).ready(study)

    async def optimize(self, study: Study) -> Workflow:
        for _ in range(self.rounds if study.train else 0):
            start = study.best
            merged_all = await self._round(study, start)
            if merged_all is None:
                break
            if not study.affords(merged_all):
                study.log("too few calls are left to try on val what the parts were merged to")
                break
            await study.evaluate(merged_all, race=True)
        return study.best

    async def _round(self, study: Study, start: Workflow) -> Workflow | None:
        """Divide, optimize, merge. Return None if the budget is too small for a single part."""
        modules: list[Module] = []
        parts = self._parts(study)
        share = SHARE / len(parts)
        for number, rows in enumerate(parts):
            left = 1 - number * share  # of the initial budget, if all earlier parts used up their shares
            name = f"part {number + 1}"
            part = study.narrow(train=rows, val=rows, workflow=start, share=share / left, name=name)
            if part.affords(start):
                before = await part.evaluate(start)
                made = await part.improve(make_optimizer(self.optimizer))
                after = part.best_evaluation or before
                modules.append(Module(made, rows, after.score - before.score))
        if len(modules) < len(parts):
            study.log(
                f"{len(parts) - len(modules)} of {len(parts)} parts are left out: the calls of their shares are too "
                "few to run the workflow on their rows",
                left_out=len(parts) - len(modules),
            )
        while len(modules) > 1:
            groups = [modules[i : i + FAN_IN] for i in range(0, len(modules), FAN_IN)]
            modules = [await self._merge(study, start, group) for group in groups]
        return modules[0].workflow if modules else None

    def _parts(self, study: Study) -> list[list[Example]]:
        if (by := self.by) is None:
            return split_at_random(study.train, self.size, study.rng)
        return split_by_group(study.train, self.size, study.rng, lambda row: row.get(by, ""))

    async def _merge(self, study: Study, start: Workflow, group: Sequence[Module]) -> Module:
        """Return the merged module if it is not worse than the group's best on rows of all parts, else the best.

        If the budget does not cover the comparison, return the module with the largest gain on its own rows.
        """
        rows = [row for module in group for row in module.rows]
        by_gain = sorted(group, key=lambda m: m.gain, reverse=True)
        gains = {m.workflow: m.gain for m in reversed(by_gain)}
        distinct = list(dict.fromkeys(m.workflow for m in group))
        first = Module(by_gain[0].workflow, rows, by_gain[0].gain)
        if len(distinct) == 1:
            return first
        share = max(1, GUARD_ROWS // len(group))
        guard = [row for m in group for row in study.rng.sample(m.rows, min(share, len(m.rows)))][:GUARD_ROWS]
        if study.remaining() < (len(distinct) + 1) * study.planned_calls(start, guard) + 1:
            study.log(
                f"too few calls are left to merge {len(distinct)} workflows: of these only the one goes on that "
                "gained most on its own rows",
                dropped=len(distinct) - 1,
                gain=first.gain,
            )
            return first
        scored = [((await study.evaluate(w, guard)).score, w) for w in distinct]
        scored.sort(key=lambda s: s[0], reverse=True)
        score, best = scored[0]
        for number in range(ATTEMPTS):
            proposer = Proposer(study, self.temperature)
            made = await merge_workflows(proposer, start, scored, replica=number)
            if made is None or made in distinct or not study.affords(made, guard):
                continue
            after = (await study.evaluate(made, guard)).score
            if after >= score:
                return Module(made, rows, gains[best] + after - score)
        return Module(best, rows, gains[best])

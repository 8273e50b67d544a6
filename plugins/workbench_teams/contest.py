"""`contest`: members compete, and the answers of those with the best standing count.

Source: the internal contest of ContestTrade (arXiv 2508.00554): members are scored and ranked continuously, and only
the answers of the best are adopted. Departure: standings come from training rows, through the optimizer `team`, and are
settings of the workflow, because a contest that learned during the test would read its labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from workbench.base.concurrency import gather_all
from workbench.errors import SpecError
from workbench.runtime import Context
from workbench.spec import NODE
from workbench_teams.members import TeamConfig, TeamNode, no_answer_error


class ContestConfig(TeamConfig):
    """Settings of a `contest` node."""

    standing: dict[str, float] = Field(default_factory=dict, description="score of each member in [0, 1]; default: 0.5")
    adopt: int = Field(0, ge=0, le=64, description="number of best members that answer; 0: all")


class Contest(TeamNode):
    """The best members by standing answer, and standings weigh their votes."""

    Config = ContestConfig
    primary = "of"
    powers = {"of": NODE}
    learnable = {"adopt": "int", "standing": "standing", "members": "members", "left_out": "members"}
    hears = False
    config: ContestConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        if unknown := [m for m in config.standing if m not in config.members]:
            raise SpecError(f"there is no member '{unknown[0]}'", path=("standing",))

    def standing(self, member: str) -> float:
        return self.config.standing.get(member, 0.5)

    @property
    def asked(self) -> list[str]:
        """The members that answer, best first."""
        order = sorted(self.active, key=lambda m: (-self.standing(m), self.active.index(m)))
        return order[: self.config.adopt or len(order)]

    @property
    def max_calls(self) -> int:
        return sum(self.first[m].max_calls for m in self.asked)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        found = await gather_all(self.answer(m, inputs, ctx, 0) for m in self.asked)
        answers = {m: a for m, a in zip(self.asked, found, strict=True) if a is not None}
        if not answers:
            raise no_answer_error()
        weight: dict[str, float] = {}
        for member, answer in answers.items():
            weight[self.ballot(answer)] = weight.get(self.ballot(answer), 0.0) + max(self.standing(member), 1e-6)
        best = max(weight, key=lambda b: (round(weight[b], 9), -list(weight).index(b)))
        ctx.note(answers={m: self.ballot(a) for m, a in answers.items()})
        return next(a for a in answers.values() if self.ballot(a) == best)

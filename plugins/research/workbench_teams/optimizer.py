"""The optimizer `team`: measures each member's importance on train and keeps the members that count.

Source: team optimization of DyLAN (arXiv 2310.02170, section 3.4): importance scores are averaged over training rows,
and the best k members stay. Departures: every k is tried while the budget lasts, and val decides, since the best k is
not known; and it serves any node whose trace has `importance`, or the `answers` of its members, which the metric then
scores. The members of an `ensemble` so get the weights of their votes, as in the contest of ContestTrade (arXiv
2508.00554).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.errors import WorkbenchError
from workbench.workflow import learnable_addresses, node_at


def _teams(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The names of the members of each team, by its address."""
    found: dict[str, tuple[str, ...]] = {}
    for address, what in learnable_addresses(workflow).items():
        node: Any = node_at(workflow, address)
        if what == "members":
            found[address.rpartition(".")[0]] = node.active
        elif what == "weights" and isinstance(node.config.of, list) and len(node.weights) > 1:
            found[address.rpartition(".")[0]] = tuple(node.weights)
    return found


class Team(Optimizer):
    """Prunes teams to the members that count, by their importance on training rows."""

    rows: int = Field(24, ge=1, le=10_000, description="training rows that members are measured on")
    race: bool = Field(True, description="stop candidates early that are clearly worse than the best so far")

    def reads_search(self) -> bool:
        return False

    def missing(self, workflow: Workflow) -> str | None:
        return None if _teams(workflow) else "a team (`dylan`, `selforg`, or an `ensemble` of several nodes)"

    async def optimize(self, study: Study) -> Workflow:
        rows = list(study.train)[: self.rows]
        while rows and not study.affords(study.workflow, rows):
            rows = rows[: len(rows) // 2]
        teams = _teams(study.workflow)
        if not rows or not teams:
            return study.best
        seen = await study.evaluate(study.workflow, rows, traces=True)
        for place, members in teams.items():
            worth = await self._worth(study, place, members, seen)
            for patch in self._patches(study.best, place, worth):
                candidate = study.best.patched(patch)
                if not study.affords(candidate):
                    return study.best
                await study.evaluate(candidate, race=self.race)
        return study.best

    async def _worth(self, study: Study, place: str, members: Sequence[str], seen: Evaluation) -> dict[str, float]:
        """Each member's mean importance over the rows; in an ensemble, the mean score of its answers. A row without its
        answer counts as 0."""
        node = node_at(study.workflow, f"{place}.members")
        total, rows = dict.fromkeys(members, 0.0), 0
        for row, result in zip(study.train, seen.results, strict=False):
            for span in result.trace.spans if result.trace and result.score is not None else ():
                if span.node != place.removeprefix("nodes."):
                    continue
                told = span.notes.get("importance")
                if told is None:
                    told = await self._scores(study, row, result, node, span.notes.get("answers", {}))
                rows += 1
                for member, value in told.items():
                    if member in total:
                        total[member] += value
        return {member: value / rows for member, value in total.items()} if rows else {}

    async def _scores(
        self, study: Study, row: Any, result: Any, node: Any, answers: Mapping[str, Sequence[str]]
    ) -> dict[str, float]:
        """The metric's mean score of each member's answers in place of the team's."""
        found, output = {}, node.config.field or node.outputs[-1]
        for member, ballots in answers.items():
            scores = [0.0] * len(ballots)
            for number, ballot in enumerate(ballots):
                try:
                    scored = await study.score(row, {**result.prediction, output: json.loads(ballot)}, result.trace)
                    scores[number] = scored.value
                except WorkbenchError:
                    raise
                except Exception:  # the metric cannot score such an answer
                    continue
            found[member] = sum(scores) / node.config.samples
        return found

    def _patches(self, workflow: Workflow, place: str, worth: Mapping[str, float]) -> Sequence[Patch]:
        """Teams of the best members, from small to large; those of an ensemble get their weights."""
        order = sorted(worth, key=lambda m: (-worth[m], list(worth).index(m)))
        node: Any = node_at(workflow, f"{place}.members")
        if "weights" in node.learnable:
            return [self._weighted(place, node, worth, order[:k]) for k in range(1, len(order) + 1)]
        return [
            Patch(
                {f"{place}.members": {m: role for m, role in node.config.members.items() if m in order[:k]}},
                note=f"keeps {', '.join(order[:k])}",
            )
            for k in range(1, len(order))
        ]

    def _weighted(self, place: str, node: Any, worth: Mapping[str, float], best: Sequence[str]) -> Patch:
        # A weight of 0 would send home a member that is to be kept.
        weights = [round(max(worth[m.name], 1e-6), 6) if m.name in best else 0 for m in node.members]
        return Patch({f"{place}.weights": weights}, note=f"asks the {len(best)} best by their scores on train")

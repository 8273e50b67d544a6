"""The optimizer `team`: measures each member's importance on train and keeps the members that count.

Source: team optimization of DyLAN (arXiv 2310.02170, section 3.4): importance scores are averaged over training rows,
and the best k members stay. Departures: every k is tried while the budget lasts, and val decides, since the best k is
not known; and it serves any node whose trace has `importance`, or the `answers` of its members, which the metric then
scores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.errors import WorkbenchError
from workbench.workflow import learnable_addresses, node_at, setting_at


def _teams(workflow: Workflow) -> list[str]:
    return [address for address, what in learnable_addresses(workflow).items() if what in ("members", "library")]


class Team(Optimizer):
    """Prunes teams to the members that count, by their importance on training rows."""

    powers = {}

    rows: int = Field(24, ge=1, le=10_000, description="training rows that members are measured on")
    race: bool = Field(True, description="stop candidates early that are clearly worse than the best so far")

    def reads_search(self) -> bool:
        return False

    def lacking(self, workflow: Workflow) -> str | None:
        return None if _teams(workflow) else "a team (`captain`, `contest`, `dylan`, `selforg`)"

    async def optimize(self, study: Study) -> Workflow:
        rows = list(study.train)[: self.rows]
        while rows and not study.affords(study.workflow, rows):
            rows = rows[: len(rows) // 2]
        teams = _teams(study.workflow)
        if not rows or not teams:
            return study.best
        seen = await study.evaluate(study.workflow, rows, traces=True)
        for place in dict.fromkeys(address.rpartition(".")[0] for address in teams):
            worth = await self._worth(study, place, seen)
            for patch in self._patches(study.best, place, worth):
                candidate = study.best.patched(patch)
                if not study.affords(candidate):
                    return study.best
                await study.evaluate(candidate, race=self.race)
        return study.best

    async def _worth(self, study: Study, place: str, seen: Evaluation) -> dict[str, float]:
        """Each member's mean importance over the rows; in a contest, the mean score of its answers. A row without its
        answer counts as 0."""
        node: Any = node_at(study.workflow, f"{place}.members")
        members = getattr(node, "active", None) or tuple(getattr(node.config, "library", ()))
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
        self, study: Study, row: Any, result: Any, node: Any, answers: Mapping[str, str]
    ) -> dict[str, float]:
        """The metric's score of each member's answer in place of the team's."""
        found, output = {}, node.outputs[-1]
        for member, ballot in answers.items():
            try:
                scored = await study.score(row, {**result.prediction, output: json.loads(ballot)}, result.trace)
                found[member] = scored.value
            except WorkbenchError:
                raise
            except Exception:  # the metric cannot score such an answer
                found[member] = 0.0
        return found

    def _patches(self, workflow: Workflow, place: str, worth: Mapping[str, float]) -> Sequence[Patch]:
        """Teams of the best members, from small to large; a contest first gets its standing."""
        order = sorted(worth, key=lambda m: (-worth[m], list(worth).index(m)))
        names = node_at(workflow, f"{place}.members").learnable
        if "library" in names:
            library = setting_at(workflow, f"{place}.library") or {}
            written = workflow.get(f"{place}.library", {})
            kept = {name: written[name] for name in library if worth.get(name)}
            return (
                [Patch({f"{place}.library": kept}, note=f"kept the experts in use: {', '.join(kept)}")]
                if (0 < len(kept) < len(library))
                else []
            )
        patches = []
        if "standing" in names:
            standing = {m: round(worth[m], 6) for m in order}
            for k in range(1, len(order) + 1):
                note = f"adopts the {k} best by their standing on train"
                patches.append(Patch({f"{place}.standing": standing, f"{place}.adopt": k}, note=note))
            return patches
        gone = list(setting_at(workflow, f"{place}.left_out") or ())
        for k in range(1, len(order)):
            out = [*gone, *order[k:]]
            patches.append(Patch({f"{place}.left_out": out}, note=f"keeps {', '.join(order[:k])}"))
        return patches

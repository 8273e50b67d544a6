"""The optimizer `team`: measure what each member is worth on train, and keep those who count.

Source: team optimization of DyLAN (arXiv 2310.02170, section 3.4): importance scores are averaged over training rows and
the best k members go on. Departures: every k is tried, the budget allowing, and val decides, where the original fixes k;
and it serves any node that tells `importance` in its trace, or the `answers` of its members, which are scored by the
metric.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.nodes import learnable, node_at, setting


class Team(Optimizer):
    """Prunes teams to the members that count, by their importance on training rows."""

    rows: int = Field(24, ge=1, le=10_000, description="training rows that members are measured on")
    race: bool = Field(True, description="stop candidates early that are clearly worse than the best so far")

    async def optimize(self, study: Study) -> Workflow:
        rows = list(study.train)[: self.rows]
        while rows and not study.affords(study.workflow, rows):
            rows = rows[: len(rows) // 2]
        teams = [a for a, what in learnable(study.workflow).items() if what in ("members", "library")]
        if not rows or not teams:
            return study.best
        seen = await study.evaluate(study.workflow, rows, traces=True)
        for place in dict.fromkeys(address.rpartition(".")[0] for address in teams):
            worth = self._worth(study, place, seen)
            for patch in self._patches(study.best, place, worth):
                candidate = study.best.patched(patch)
                if not study.affords(candidate):
                    return study.best
                await study.evaluate(candidate, race=self.race)
        return study.best

    def _worth(self, study: Study, place: str, seen: Evaluation) -> dict[str, float]:
        """Each member's mean importance; for a contest the share of rows that it answered rightly."""
        path = place.removeprefix("nodes.")
        found: dict[str, list[float]] = {}
        for row, result in zip(study.train, seen.results, strict=False):
            for span in result.trace.spans if result.trace else ():
                if span.node != path:
                    continue
                told: Mapping[str, float] = span.notes.get("importance") or self._right(study, place, span.notes, row)
                for member, value in told.items():
                    found.setdefault(member, []).append(value)
        return {member: math.fsum(values) / len(values) for member, values in found.items()}

    def _right(self, study: Study, place: str, notes: Mapping[str, Any], row: Any) -> dict[str, float]:
        """Which members agree with the label of the row; none where the labels are not known."""
        node = node_at(study.workflow, f"{place}.of")
        target = study.targets.get(node.outputs[-1]) if node.outputs else None
        if target is None or target not in row:
            return {}
        right = json.dumps(row[target], sort_keys=True, default=str)
        return {member: float(ballot == right) for member, ballot in notes.get("answers", {}).items()}

    def _patches(self, workflow: Workflow, place: str, worth: Mapping[str, float]) -> Sequence[Patch]:
        """Teams of the best members, from small to large; a contest first gets its standing."""
        order = sorted(worth, key=lambda m: (-worth[m], list(worth).index(m)))
        names = node_at(workflow, f"{place}.members").learnable
        if "library" in names:
            library = setting(workflow, f"{place}.library") or {}
            kept = {name: workflow.get(f"{place}.library.{name}") for name in library if worth.get(name)}
            return [Patch({f"{place}.library": kept}, note=f"kept the experts in use: {', '.join(kept)}")] if (
                0 < len(kept) < len(library)) else []  # fmt: skip
        patches = []
        if "standing" in names:
            standing = {m: round(worth[m], 6) for m in order}
            for k in range(1, len(order) + 1):
                note = f"adopts the {k} best by their standing on train"
                patches.append(Patch({f"{place}.standing": standing, f"{place}.adopt": k}, note=note))
            return patches
        gone = list(setting(workflow, f"{place}.left_out") or ())
        for k in range(1, len(order)):
            out = [*gone, *order[k:]]
            patches.append(Patch({f"{place}.left_out": out}, note=f"keeps {', '.join(order[:k])}"))
        return patches

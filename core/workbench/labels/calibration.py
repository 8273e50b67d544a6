"""A judge against people's labels on the answers of a run: agreement, length bias, and the gain that both show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.labels.agreement import JudgeAgreement, compare_judge
from workbench.labels.items import Answer
from workbench.proof import (
    LEAST_LABELS,
    JudgeCheck,
    JudgedRow,
    Label,
    Proof,
    check_judge,
    describe_judged,
    mean_labels,
    paired_proof,
)


@dataclass(frozen=True)
class Calibration:
    """agreement: on all answers with a label. proof, check: of the gain, if the run has two sides and a judge."""

    agreement: JudgeAgreement | None
    proof: Proof | None
    check: JudgeCheck | None

    def as_dict(self) -> dict[str, Any]:
        gain = None
        if self.proof is not None and self.check is not None:
            gain = {
                "diff": self.proof.diff,
                "ci95": list(self.proof.ci95),
                "p": self.proof.p,
                "shown": self.proof.shown,
            }
            gain["judge"] = self.check.as_dict()
        return {"agreement": self.agreement and self.agreement.as_dict(), "gain": gain}

    def lines(self) -> list[str]:
        """The calibration as plain text."""
        found = self.agreement
        if found is None:
            return ["The scores of the run cannot be compared with people: fewer than 3 of its answers have labels."]
        lines = [
            f"The metric of the run against people, on {found.n} answers:",
            f"  same verdict  {found.same:.2f} [{found.same95[0]:.2f}, {found.same95[1]:.2f}]",
            f"  too kind by   {found.error:+.3f} [{found.error95[0]:+.3f}, {found.error95[1]:+.3f}]",
        ]
        if found.correlation is not None:
            lines.append(f"  correlation   {found.correlation:+.2f}")
        if found.slope is not None and found.slope95 is not None:
            low, high = found.slope95
            told = "likes long answers" if low > 0 else "likes short answers" if high < 0 else "no bias shown"
            lines.append(f"  with 100 more words {found.slope:+.3f} [{low:+.3f}, {high:+.3f}]: {told}")
        if self.proof is not None and self.check is not None:
            lines.append(describe_judged(self.proof, self.check))
            if not self.check.calibrated:
                lines.append(f"{self.check.labelled} of {LEAST_LABELS} rows have labels on both sides.")
        return lines


def calibrate(answers: Sequence[Answer], labels: Sequence[Label], *, judged: bool = True) -> Calibration:
    """Compare the scores of a run with people's. judged: whether a language model gave them; the gain by any other
    metric needs no labels, so none is calculated.

    The gain is at the level of a first test: what counts is the report of the run, which knows of earlier tests.
    """
    known = mean_labels(labels)
    scored = {(a.item.row, a.item.key): a for a in answers}
    compared = [(a.score, known[key], _words(a.item.answer)) for key, a in scored.items() if key in known]
    if not judged or {a.side for a in answers} != {0, 1}:
        return Calibration(compare_judge(compared), None, None)
    sides: dict[str, dict[int, Answer]] = {}
    for answer in answers:
        sides.setdefault(answer.item.row, {})[answer.side] = answer

    def both(of: dict[int, Answer], values: Any) -> tuple[float | None, float | None]:
        return tuple(values(of[side]) if side in of else None for side in (0, 1))  # type: ignore[return-value]

    rows = [
        JudgedRow(
            next(iter(of.values())).cluster,
            both(of, lambda a: a.score),
            both(of, lambda a: known.get((a.item.row, a.item.key))),
        )
        for of in sides.values()
    ]
    judge = paired_proof(
        [row.judge[0] for row in rows], [row.judge[1] for row in rows], clusters=[row.cluster for row in rows]
    )
    seen = {(one.row, one.answer) for one in labels if one.score is None} - known.keys()
    return Calibration(compare_judge(compared), *check_judge(judge, rows, len(seen)))


def _words(answer: Any) -> int:
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
    return len(text.split())

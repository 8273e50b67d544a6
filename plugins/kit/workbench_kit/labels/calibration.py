"""A judge against human labels on the answers of a run: agreement, length bias, and which rows have labels.

The gain by labels is only in the report of the run, which counts how often it was viewed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench_kit.labels.agreement import JudgeAgreement, compare_judge
from workbench_kit.labels.items import Answer
from workbench_kit.labels.judged import (
    MIN_LABELS,
    NOTHING,
    Drawn,
    Label,
    describe_gap,
    follow_draw,
    judge_rows,
    mean_labels,
)


@dataclass(frozen=True)
class Calibration:
    """agreement: on all answers with a label. drawn: the rows with labels, if the run has two sides and a judge."""

    agreement: JudgeAgreement | None
    drawn: Drawn | None

    def as_dict(self) -> dict[str, Any]:
        drawn = None
        if (found := self.drawn) is not None:
            of = len(found.labelled) + len(found.skipped) + len(found.others)
            drawn = {"labelled": len(found.labelled), "skipped": len(found.skipped), "rows": of}
            drawn["out_of_order"] = found.later
        return {"agreement": self.agreement and self.agreement.as_dict(), "drawn": drawn}

    def lines(self) -> list[str]:
        """Describe the calibration as plain text."""
        return [*self._agreement_lines(), *self._draw_lines()]

    def _agreement_lines(self) -> list[str]:
        found = self.agreement
        if found is None:
            return ["The scores of the run cannot be compared with people: fewer than 3 of its answers have labels."]
        lines = [
            f"Metric of the run compared with people, on {found.n} answers:",
            f"  same verdict  {found.same:.2f} [{found.same95[0]:.2f}, {found.same95[1]:.2f}]",
            f"  too lenient by   {found.error:+.3f} [{found.error95[0]:+.3f}, {found.error95[1]:+.3f}]",
        ]
        if found.correlation is not None:
            lines.append(f"  correlation   {found.correlation:+.2f}")
        if found.slope is not None and found.slope95 is not None:
            low, high = found.slope95
            told = "favours long answers" if low > 0 else "favours short answers" if high < 0 else "no bias shown"
            lines.append(f"  with 100 more words {found.slope:+.3f} [{low:+.3f}, {high:+.3f}]: {told}")
        return lines

    def _draw_lines(self) -> list[str]:
        if (found := self.drawn) is None:
            return []
        n, skipped = len(found.labelled), f", {len(found.skipped)} were skipped" if found.skipped else ""
        lines = [f"{n} sealed rows have labels on both sides{skipped}; {MIN_LABELS} are needed for a proof."]
        lines += [f"{describe_gap(found)}."] if found.later else []
        if n >= MIN_LABELS:
            lines.append(
                "To see the gain they show: workbench resume RUN. Each report with other labels is another test, which "
                "needs a smaller p, so finish labelling first."
            )
        return lines


def calibrate(answers: Sequence[Answer], labels: Sequence[Label], *, judged: bool = True) -> Calibration:
    """Compare the scores of a run with people's.

    judged: whether a language model gave them; a gain by any other metric needs no labels.
    """
    known = mean_labels(labels)
    scored = {(a.item.row, a.item.key): a for a in answers}
    compared = [(a.score, known[key], _words(a.item.answer)) for key, a in scored.items() if key in known]
    drawn = None
    if judged and {a.side for a in answers} == {0, 1}:
        sides: dict[str, dict[int, Answer]] = {}
        for one in answers:
            sides.setdefault(one.item.row, {})[one.side] = one
        said = {
            row: [(of[n].score, of[n].item.key) if n in of else NOTHING for n in (0, 1)] for row, of in sides.items()
        }
        rows = [(row, next(iter(sides[row].values())).cluster, a, b) for row, (a, b) in said.items()]
        drawn = follow_draw(judge_rows(rows, labels))
    return Calibration(compare_judge(compared), drawn)


def _words(answer: Any) -> int:
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
    return len(text.split())

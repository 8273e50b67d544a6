"""The proof where a judge scores: a language model's opinion decides nothing until people's labels correct it.

The labels are of some sealed rows, drawn at random, whose answers of both sides people scored without knowing whose
they were (`workbench label`). They are made after the winner was chosen, and nothing but the report reads them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from workbench.errors import SpecError
from workbench.hashing import digest
from workbench.proof.prediction_powered import PoweredMean, powered_mean
from workbench.proof.statistics import LEVEL, Proof, describe_proof, paired_proof

#: Fewer units with labels show nothing: the interval holds for many.
LEAST_LABELS = 30

_FORM = 'A line is {"row": ID, "answer": HASH, "by": NAME, "score": 0 to 1}, as `workbench label` writes it.'


@dataclass(frozen=True)
class Label:
    """What somebody says of an answer. score: None if they skipped it. edit: what they would have answered."""

    row: str
    answer: str
    by: str
    score: float | None = None
    edit: str | None = None
    comment: str | None = None


def answer_key(prediction: Mapping[str, Any], field: str | None) -> str:
    """A hash of what is labelled of a prediction: the field that the judge reads, or all of it."""
    return digest(prediction[field] if field is not None and field in prediction else dict(prediction))


def read_labels(path: Path) -> list[Label]:
    """The labels of a file of JSON lines: of each row, answer and labeller the last one. A last line that was cut
    short, as by a kill, is left out. Raises SpecError that names the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read: {error}", hint=_FORM) from None
    found: dict[tuple[str, str, str], Label] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                label = _label(line)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                if number == len(lines):
                    break
                raise SpecError(f"not a label: {error}", file=str(path), line=number, hint=_FORM) from None
            key = (label.row, label.answer, label.by)
            found.pop(key, None)
            found[key] = label
    return list(found.values())


def _label(line: str) -> Label:
    value: Any = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("a label is a JSON object")
    given = cast(dict[str, Any], value)
    names = [given[name] for name in ("row", "answer", "by")]
    score = given.get("score")
    texts = [given.get(name) for name in ("edit", "comment")]
    if not all(isinstance(name, str) for name in names) or not all(isinstance(t, str | None) for t in texts):
        raise ValueError("row, answer, by, edit and comment are texts")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1):
        raise ValueError(f"the score must be a number in [0, 1], not {score!r:.40}")
    return Label(names[0], names[1], names[2], None if score is None else float(score), texts[0], texts[1])


def mean_labels(labels: Sequence[Label]) -> dict[tuple[str, str], float]:
    """By row and answer, the mean score of those who labelled it."""
    scores: dict[tuple[str, str], list[float]] = {}
    for label in labels:
        if label.score is not None:
            scores.setdefault((label.row, label.answer), []).append(label.score)
    return {key: math.fsum(given) / len(given) for key, given in scores.items()}


@dataclass(frozen=True)
class JudgedRow:
    """A sealed row: its cluster, the judge's scores of baseline and winner, and those of people (None: no labels)."""

    cluster: Hashable
    judge: tuple[float | None, float | None]
    people: tuple[float | None, float | None] = (None, None)

    @property
    def differences(self) -> tuple[float, float | None] | None:
        """(by the judge, by people); None if the judge scored one side alone or none."""
        (a, b), (x, y) = self.judge, self.people
        if a is None or b is None:
            return None
        return b - a, None if x is None or y is None else y - x


@dataclass(frozen=True)
class JudgeCheck:
    """What is known of a judge that scored a run.

    Attributes:
        diff, ci95: the gain by the judge alone.
        labelled: units whose answers people scored on both sides.
        skipped: answers that people saw and did not score.
        powered: the gain by labels and judge together; None if there are too few labels.
    """

    diff: float
    ci95: tuple[float, float]
    labelled: int = 0
    skipped: int = 0
    powered: PoweredMean | None = None

    @property
    def calibrated(self) -> bool:
        return self.powered is not None

    def as_dict(self) -> dict[str, Any]:
        found = {"diff": self.diff, "ci95": list(self.ci95), "labelled": self.labelled, "calibrated": self.calibrated}
        if self.powered is not None:
            found |= {"weight": self.powered.weight, "labels_alone": self.powered.labels_alone}
        return found


def check_judge(proof: Proof, rows: Sequence[JudgedRow], skipped: int = 0) -> tuple[Proof, JudgeCheck]:
    """The proof that counts where a judge scored: by PPI++ with LEAST_LABELS labels or more, else the judge's own,
    which shows nothing.

    A cluster is a unit, and has a label if all its rows have. Rows that one side alone answered count as in
    `paired_proof`: a gain is shown only with the worst case for them. With labels for all units, the proof is
    `paired_proof` of these.

    The interval holds for many labels, and few may hold no case of a rare disaster. So, as Gaffke's test does, a gain
    is shown, and a loss ruled out, only if it still is with one more label, the worst that there could be.

    Args:
        proof: by the judge's scores.
        rows: the tested rows.
        skipped: answers that people saw and did not score.
    """
    units = list(_units(rows))
    labelled = [(people, judge) for judge, people in units if people is not None]
    check = JudgeCheck(proof.diff, proof.ci95, len(labelled), skipped)
    if len(labelled) < LEAST_LABELS:
        return replace(proof, shown=False, lowest=-1.0), check
    others = [judge for judge, people in units if people is None]
    people, judge = [said for said, _ in labelled], [judged for _, judged in labelled]
    found = powered_mean(people, judge, others)
    check = replace(check, powered=found)
    if not others:  # nothing is left to the judge
        return _by_people(proof, rows), check
    sided, n = proof.n_one_sided, len(units)
    worst = powered_mean([*people, -1.0], [*judge, math.fsum(judge) / len(judge)], others)

    def bounds(mean: PoweredMean, level: float) -> tuple[float, float]:
        low, high = mean.interval(level)
        return max(-1.0, (n * low - sided) / (n + sided)), min(1.0, (n * high + sided) / (n + sided))

    lowest = bounds(worst, 1 - proof.alpha)[0]
    made = replace(
        proof,
        diff=found.estimate,
        ci95=bounds(found, 1 - LEVEL),
        p=found.p,
        test=f"PPI++, {len(labelled)} labelled rows",
        shown=found.estimate > 0 and found.p < proof.alpha and lowest > 0,
        smallest_gain=_smallest_gain(found, worst, proof.alpha),
        lowest=lowest,
    )
    return made, check


def _by_people(proof: Proof, rows: Sequence[JudgedRow]) -> Proof:
    """The proof by people's scores, who scored every answer."""
    baseline, winner = ([row.people[side] if row.judge[side] is not None else None for row in rows] for side in (0, 1))
    clusters = [row.cluster for row in rows]
    return paired_proof(baseline, winner, clusters=clusters, alpha=proof.alpha, margin=proof.margin)


def _units(rows: Sequence[JudgedRow]) -> Iterator[tuple[float, float | None]]:
    """(difference by the judge, by people) of each cluster."""
    clusters: dict[Hashable, list[tuple[float, float | None]]] = {}
    for row in rows:
        if row.differences is not None:
            clusters.setdefault(row.cluster, []).append(row.differences)
    for members in clusters.values():
        people = [said for _, said in members if said is not None]
        whole = len(people) == len(members)
        judge = math.fsum(judged for judged, _ in members) / len(members)
        yield judge, math.fsum(people) / len(people) if whole else None


def _smallest_gain(found: PoweredMean, worst: PoweredMean, alpha: float) -> float | None:
    """The true gain that is shown in 4 of 5 cases with as many labels, by the standard errors."""
    gain = found.estimate - worst.interval(1 - alpha)[0] + 0.8416 * found.error
    return gain if 0 < gain <= 1 else None


def describe_judged(proof: Proof, check: JudgeCheck) -> str:
    """The proof in a sentence or two. proof: the one that counts."""
    said = f"{check.diff:+.3f} [{check.ci95[0]:+.3f}, {check.ci95[1]:+.3f}]"
    if check.powered is None:
        labels = (
            f"{check.labelled} of them have labels of people on both sides" if check.labelled else "none has labels"
        )
        return (
            f"The gain is not shown: {said} is the opinion of a judge, on {proof.n_rows} sealed test rows; {labels}, "
            f"and {LEAST_LABELS} are needed (workbench label RUN, proof: {{labels: FILE}})."
        )
    worth = f"as much as {check.powered.labels_alone:.0f} labels without it"
    undone = ""
    if not proof.shown and proof.ci95[0] > 0 and proof.p < proof.alpha:
        undone = " With one more label, the worst that there could be, it would not be shown: label more rows."
    skipped = f" {check.skipped} answers were skipped, as if they were like the others." if check.skipped else ""
    return (
        f"{describe_proof(proof)} By the judge alone {said}; labels of people correct it, and with its scores (weight "
        f"{check.powered.weight:.2f}) they say {worth}.{undone}{skipped}"
    )

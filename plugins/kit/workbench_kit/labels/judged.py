"""The proof for a judge's scores: a language model's opinion decides nothing until human labels correct it.

The labels are for some sealed rows, drawn at random. People scored the answers of both sides without knowing which side
wrote them (`workbench label`). They are made after the winner was chosen, and only the report reads them. The draw is
an order of the clusters (`place_in_draw`), and labels count as far as they follow it without a gap.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from workbench.base.data_files import read_data
from workbench.base.hashing import digest
from workbench.base.text import one_line
from workbench.errors import SpecError
from workbench.proof import GAIN, LEVEL, Claim, Evidence, Kind, describe_proof, paired_proof, voided
from workbench.spec import read_outside
from workbench.task import graded_field
from workbench_kit.labels.prediction_powered import PoweredMean, lowest_mean, powered_mean

#: Minimum number of units with labels: the interval is valid only for many.
MIN_LABELS = 30

_FORM = 'A line is {"row": ID, "answer": HASH, "by": NAME, "score": 0 to 1}, as `workbench label` writes it.'


@dataclass(frozen=True)
class Label:
    """A person's label of an answer. score: None if skipped. edit: the answer that the person would have given."""

    row: str
    answer: str
    by: str
    score: float | None = None
    edit: str | None = None
    comment: str | None = None


def place_in_draw(cluster: str) -> str:
    """Return the position of a cluster in the order of labelling: any first part of it is a random sample.

    It is the same in all runs, so that nobody can choose it. cluster: as stored with the rows of a run.
    """
    return digest([0, cluster])


def answer_key(prediction: Mapping[str, Any], field: str | None) -> str:
    """Return a hash of the labelled part of a prediction: the field that the judge reads, or all of it."""
    return digest(prediction[field] if field is not None and field in prediction else dict(prediction))


def read_labels(path: Path) -> list[Label]:
    """Read labels from a file of JSON lines: the last one of each row, answer and labeller. A truncated last line, e.g.
    after a kill, is skipped. Raises SpecError with the line number."""
    try:
        text = read_data(path).decode()
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
    """Return the labellers' mean score by row and answer."""
    scores: dict[tuple[str, str], list[float]] = {}
    for label in labels:
        if label.score is not None:
            scores.setdefault((label.row, label.answer), []).append(label.score)
    return {key: math.fsum(given) / len(given) for key, given in scores.items()}


def whole_labellers(labels: Sequence[Label]) -> list[Label]:
    """Return the labels that count: of the labeller with most answers, of others who saw all of these too, and for
    answers that none of them saw.

    Anyone who labels only some rows again could choose rows, and thereby the result.
    """
    seen: dict[str, set[tuple[str, str]]] = {}
    for one in labels:
        seen.setdefault(one.by, set()).add((one.row, one.answer))
    first = max(seen.values(), key=len, default=set[tuple[str, str]]())
    whole = {by for by, answers in seen.items() if answers >= first}
    settled: dict[tuple[str, str], str] = {}
    found: list[Label] = []
    for one in labels:
        answer = (one.row, one.answer)
        if one.by in whole or (answer not in first and settled.setdefault(answer, one.by) == one.by):
            found.append(one)
    return found


@dataclass(frozen=True)
class JudgedRow:
    """A sealed row: its cluster, and by side (baseline, winner) the scores of the judge and of people.

    people: None for an answer without a score; seen: whether somebody saw that answer and skipped it. place: in the
    draw (`place_in_draw`); rows with equal ones keep their order. row: its id.
    """

    cluster: Hashable
    judge: tuple[float | None, float | None]
    people: tuple[float | None, float | None] = (None, None)
    seen: tuple[bool, bool] = (False, False)
    place: str = ""
    row: str = ""

    @property
    def is_seen(self) -> bool:
        """Return True if people scored or skipped both answers."""
        return all(said is not None or seen for said, seen in zip(self.people, self.seen, strict=True))


@dataclass(frozen=True)
class Drawn:
    """The units of a draw: clusters with a judge's scores on both sides.

    labelled: differences (by people, by the judge) of labelled units, as far as they follow the draw. skipped: by the
    judge, for units among them that somebody saw and did not score. others: by the judge, for all others. later:
    labelled units after the first unlabelled one, which do not count. missing: a row of that one.
    """

    labelled: Sequence[tuple[float, float]]
    skipped: Sequence[float]
    others: Sequence[float]
    later: int = 0
    missing: str = ""


def follow_draw(rows: Sequence[JudgedRow]) -> Drawn:
    """Return the units that labels cover from the beginning of the draw. Labels after a gap do not count: a labeller
    who skips units could choose the result."""
    clusters: dict[Hashable, list[JudgedRow]] = {}
    for row in sorted(rows, key=lambda row: row.place):
        if None not in row.judge:
            clusters.setdefault(row.cluster, []).append(row)
    labelled, skipped, others = list[tuple[float, float]](), list[float](), list[float]()
    later, missing = 0, None
    for members in clusters.values():
        judge = _mean_difference([row.judge for row in members])
        scored = all(None not in row.people for row in members)
        if missing is None and scored:
            labelled.append((_mean_difference([row.people for row in members]), judge))
        elif missing is None and all(row.is_seen for row in members):
            skipped.append(judge)
        else:
            missing = members[0].row if missing is None else missing
            later += scored
            others.append(judge)
    return Drawn(labelled, skipped, others, later, missing or "")


def _mean_difference(sides: Sequence[tuple[float | None, float | None]]) -> float:
    return math.fsum(b - a for a, b in sides if a is not None and b is not None) / len(sides)


def _figures(claim: Claim, shown: bool) -> dict[str, Any]:
    drawn: Drawn = claim.more["drawn"]
    powered: PoweredMean | None = claim.more["powered"]
    found = {"diff": claim.diff, "ci95": list(claim.ci95), "labelled": claim.n, "calibrated": claim.shown}
    found |= {"skipped": len(drawn.skipped), "out_of_order": drawn.later, "looks": claim.more["looks"]}
    if powered is not None:
        found |= {"weight": powered.weight, "labels_alone": powered.labels_alone}
    return found


def _words(claim: Claim, shown: bool, why: str | None) -> list[str]:
    return [voided(claim, why) if why is not None else describe_judged(claim, claim.more["judge"])]


#: The gain by the judge alone, which enough labels calibrate. The gain's wording mentions it.
JUDGE = Kind(None, _figures, proves=False)
#: A gain by labels and judge together.
JUDGED_GAIN = replace(GAIN, words=_words, plain=None)


def judge_claim(proof: Claim, drawn: Drawn, powered: PoweredMean | None = None, looks: int = 0) -> Claim:
    """Make the claim of a judge.

    Args:
        proof: the gain by its scores.
        drawn: which units have labels.
        powered: the gain by labels and judge together; None if there are too few labels.
        looks: reports of this run with other labels before, each of which lowers the level.
    """
    more = {"drawn": drawn, "powered": powered, "looks": looks}
    calibrated, n = powered is not None, len(drawn.labelled)
    return Claim("judge", JUDGE, n, diff=proof.diff, ci95=proof.ci95, shown=calibrated, more=more)


def check_judge(proof: Claim, rows: Sequence[JudgedRow], looks: int = 0) -> tuple[Claim, Claim]:
    """Return the proof that counts for a judge's scores, and the judge's claim: by PPI++ with MIN_LABELS labels or
    more, else the judge's own, which shows nothing.

    A cluster is a unit, and has a label if all its rows have. Rows answered by one side only count as in
    `paired_proof`: a gain is shown only with the worst case for them, and the same holds for answers that people
    skipped. With labels for all units, the proof is their `paired_proof`.

    The interval is valid for many labels, and few may miss a rare disaster. So a gain is shown, and a loss ruled out,
    only if `lowest_mean` allows it, too.

    Args:
        proof: by the judge's scores, at the level that counts.
        rows: the tested rows.
        looks: as of `judge_claim`.
    """
    drawn = follow_draw(rows)
    if len(drawn.labelled) < MIN_LABELS:
        return replace(proof, shown=False, lowest=-1.0), judge_claim(proof, drawn, looks=looks)
    people, judge = [said for said, _ in drawn.labelled], [judged for _, judged in drawn.labelled]
    found = powered_mean(people, judge, drawn.others)
    check = judge_claim(proof, drawn, found, looks)
    if not drawn.others:  # all units have labels
        return _by_people(proof, rows), check
    judge += drawn.skipped
    worst, best = ([*people, *[end] * len(drawn.skipped)] for end in (-1.0, 1.0))
    sided, n = proof.n_one_sided, len(drawn.labelled) + len(drawn.skipped) + len(drawn.others)

    def bounded(value: float, end: float) -> float:
        """Return a bound, with the worst case for rows answered by one side only."""
        return max(-1.0, min(1.0, (n * value + sided * end) / (n + sided)))

    low, high = powered_mean(worst, judge, drawn.others), powered_mean(best, judge, drawn.others)
    below = lowest_mean(worst, judge, drawn.others, proof.alpha / 2)
    lowest = bounded(min(below, low.interval(1 - proof.alpha)[0]), -1.0)
    made = replace(
        proof,
        diff=found.estimate,
        ci95=(bounded(low.interval(1 - LEVEL)[0], -1.0), bounded(high.interval(1 - LEVEL)[1], 1.0)),
        p=found.p,
        test=f"PPI++, {check.n} labelled rows",
        shown=found.estimate > 0 and found.p < proof.alpha and lowest > 0,
        smallest_gain=_smallest_gain(found.estimate - below + 0.8416 * found.error),
        lowest=lowest,
    )
    return made, check


def _by_people(proof: Claim, rows: Sequence[JudgedRow]) -> Claim:
    """Return the proof by people's scores, who saw every answer. Skipped answers count by the worst case."""
    sides: list[tuple[float | None, float | None]] = []
    for row in rows:
        a, b = (said if judge is not None else None for judge, said in zip(row.judge, row.people, strict=True))
        sides.append((None, 0.0) if None not in row.judge and (a is None or b is None) else (a, b))
    baseline, winner = zip(*sides, strict=True)
    clusters = [row.cluster for row in rows]
    return paired_proof(baseline, winner, clusters=clusters, alpha=proof.alpha, margin=proof.margin)


def _smallest_gain(gain: float) -> float | None:
    """Return the true gain that would be shown in 4 of 5 cases with as many labels, by the standard errors."""
    return gain if 0 < gain <= 1 else None


def describe_judged(proof: Claim, check: Claim) -> str:
    """Describe the proof in a few sentences. proof: the one that counts. check: the judge's claim."""
    drawn: Drawn = check.more["drawn"]
    powered: PoweredMean | None = check.more["powered"]
    looks: int = check.more["looks"]
    if powered is None:
        return (
            f"The gain is not shown: {check.diff_text} is the opinion of a judge, on {proof.n_rows} sealed test rows; "
            f"{describe_labelled(drawn)}, and {MIN_LABELS} are needed (workbench label RUN, proof: {{labels: "
            "FILE}})."
        )
    worth = f"as much as {powered.labels_alone:.0f} labels without it"
    undone = more = ""
    if not proof.shown and proof.ci95[0] > 0 and proof.p < proof.alpha:
        undone = " A rare bad answer, missing from so few labels, could undo it: label more rows."
    if skipped := len(drawn.skipped):
        more = f" {skipped} rows with skipped answers count by the worst case."
    if drawn.later:
        more += f" {describe_gap(drawn)}."
    if looks:
        times = "once" if looks == 1 else f"{looks} times"
        more += f" Other labels of this run were looked at {times} before, so p must be below {proof.alpha:.2g}."
    return (
        f"{describe_proof(proof)} By the judge alone {check.diff_text}; labels of people correct it, and with its "
        f"scores (weight {powered.weight:.2f}) they say {worth}.{undone}{more}"
    )


def describe_labelled(drawn: Drawn) -> str:
    """Describe the number of rows with labels, as part of a sentence."""
    n = len(drawn.labelled)
    labels = f"{n} of them have labels of people on both sides" if n else "none has labels"
    return f"{labels} ({describe_gap(drawn)})" if drawn.later else labels


def describe_gap(drawn: Drawn) -> str:
    """Return why labels do not count, as a sentence without its full stop."""
    return (
        f"{drawn.later} more with labels do not count: row {one_line(drawn.missing)}, drawn before them, has none on "
        "one side or both, and what is left out may decide what they show"
    )


def prove_by_labels(tested: Evidence, proof: Claim) -> list[Claim]:
    """Correct a judged run's gain by human labels. Returns the gain that counts, and the judge's claim.

    A report with other labels than an earlier one of the same run is a further test, at the remaining level.

    proof: the gain by the judge's scores.
    """
    task = tested.task
    labels, path = list[Label](), task.spec.proof.labels and task.workflow.base / task.spec.proof.labels
    try:
        if path and task.spec.proof.labels:
            read_outside(task.spec.proof.labels, task.workflow.base)
        labels = read_labels(path) if path and path.exists() else []
    except SpecError as error:  # results that were paid for are reported all the same
        tested.warnings.append(f"the labels are not used: {error}")
    field, first = graded_field(task.spec.metrics[0]), [pair[0].example for pair in tested.sent_pairs]
    said = [[(side.score, answer_key(side.prediction, field)) for side in pair] for pair in tested.sent_pairs]
    judged = [(row.id, task.cluster_of(row), a, b) for row, (a, b) in zip(first, said, strict=True)]
    rows, looks = judge_rows(judged, whole_labellers(labels)), 0
    drawn = follow_draw(rows)
    if len(drawn.labelled) >= MIN_LABELS:
        looks, alpha = tested.count_look("labels", digest([drawn.labelled, drawn.skipped]))
        proof = replace(proof, alpha=alpha)
    gain, judge = check_judge(proof, rows, looks)
    return [replace(gain, kind=JUDGED_GAIN, more={"judge": judge}), judge]


#: The judge's score of an answer, and its key.
Said = tuple[float | None, str]
#: For a side without an answer.
NOTHING: Said = (None, "")


def judge_rows(rows: Iterable[tuple[str, str, Said, Said]], labels: Sequence[Label]) -> list[JudgedRow]:
    """Combine rows with people's labels. rows: id, cluster, and the judge's results for both sides."""
    known, skipped = mean_labels(labels), {(one.row, one.answer) for one in labels if one.score is None}
    made: list[JudgedRow] = []
    for row, cluster, (first, a), (second, b) in rows:
        people = known.get((row, a)), known.get((row, b))
        seen = (row, a) in skipped, (row, b) in skipped
        made.append(JudgedRow(cluster, (first, second), people, seen, place_in_draw(cluster), row))
    return made

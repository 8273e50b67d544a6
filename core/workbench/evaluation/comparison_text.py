"""A comparison of evaluations as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workbench.evaluation.compare import Difference, Side
from workbench.ledger import per_1000

#: The most rows to list that differ between the sides.
LISTED_ROWS = 20
#: The verdict if all rows took part in choosing a side.
NO_EVIDENCE = "chosen on these rows: no evidence"


def comparison_lines(sides: Sequence[Side], differences: Sequence[Difference], rows: bool = False) -> list[str]:
    """Return the comparison as plain text: a numbered table of the sides, then the differences. rows: with the rows
    whose scores differ."""
    names = [side.label or side.name for side in sides]
    lines = ["    run       split  rows  score     tokens  $/1,000 rows"]
    for number, (side, name) in enumerate(zip(sides, names, strict=True), start=1):
        cost = f"{side.cost['tokens']:>8.0f}  {per_1000(side.cost.get('usd')):<12}" if side.cost else " " * 22
        shown = "" if name == side.run else f"  {name}"
        cells = (f"{number:>2}", f"{side.run:<8}", f"{side.split:<5}", f"{len(side.scores):>4}", f"{side.score:.3f}")
        lines.append(f"{'  '.join(cells)}  {cost}{shown}".rstrip())
    for number, side in enumerate(sides, start=1):
        if missing := len(side.rows) - len(side.scores):
            lines.append(f"  {number}: {missing} of {len(side.rows)} rows have no result, and count in no mean")
    for number, found in enumerate(differences, start=2):
        lines += ["", *_difference_lines(number, found, len(differences), sides[number - 1] if rows else None)]
    return lines


def describe_choice(found: Difference) -> str:
    """Name the rows that took part in choosing a side, as a sentence without its period."""
    return _choice(found.chosen, found.chosen_in, "one of the sides", found.evidence)


def _choice(chosen: int, run: str, what: str, evidence: bool) -> str:
    rows = f"{chosen} rows were val or train of run {run}, which chose {what} by them"
    return f"{rows}; they are left out" if evidence else f"all {rows}. Take rows that no run chose by: test"


def judge_score(side: Side, least: float) -> tuple[bool, str]:
    """Hold the score of a side against a minimum, without the rows by which a run chose the workflow.

    Returns the verdict and its reason, which is empty if all rows together reach the minimum.
    """
    left = replace(side, rows={name: row for name, row in side.rows.items() if name not in side.chosen})
    passed = bool(left.scores) and left.score >= least
    text = f"The score {left.score:.3f} is {'not ' if passed else ''}below --min-score {least:g}."
    if side.chosen:
        choice = _choice(len(side.chosen), next(iter(side.chosen.values())), "the workflow", bool(left.rows))
        return passed, f"{text if left.rows else 'There is nothing to judge:'} {choice}."
    return passed, "" if passed else text


def bar_lines(passed: bool, found: Difference) -> list[str]:
    """Say whether a run is not worse than its bar (`not_worse`)."""
    proof, word = found.proof, "is ruled out" if passed else "is NOT ruled out"
    verdict = f"a loss of the margin {word}" if found.evidence else NO_EVIDENCE
    text = f"Against {found.first} ({proof.baseline:.3f}): {proof.diff_text}, p = {found.p:.2g}, {proof.n_rows} rows"
    lines = [f"{text}; {verdict}."]
    if proof.n_excluded:
        lines.append(f"Rows without a result on one side, which count at their worst: {proof.n_excluded}.")
    return [*lines, f"{describe_choice(found)}."] if found.chosen else lines


def _difference_lines(place: int, found: Difference, number: int, side: Side | None) -> list[str]:
    proof = found.proof
    verdict = {"gain": "better", "loss": "WORSE", "": "no difference is shown"}[found.shown]
    verdict = verdict if found.evidence else NO_EVIDENCE
    adjusted = f", by Holm's method for {number} comparisons" if number > 1 else ""
    lines = [
        f"{place} against 1: {proof.diff_text} on {proof.n_rows} rows, "
        f"p = {found.p:.2g} ({proof.test}{adjusted}): {verdict}",
        f"  {len(found.better)} rows better, {len(found.worse)} worse",
    ]
    if proof.n_excluded:
        lines.append(f"  {proof.n_excluded} rows are left out: they have no result on one side or both")
    if found.chosen:
        lines.append(f"  {describe_choice(found)}")
    if found.only:
        lines.append(f"  {found.only} rows are on one side only, and left out")
    for word, ids in (("better", found.better), ("worse", found.worse)) if side else ():
        shown = ", ".join(side.rows[name].handle for name in ids[:LISTED_ROWS]) if side else ""
        more = f" and {len(ids) - LISTED_ROWS} more" if len(ids) > LISTED_ROWS else ""
        lines += [f"  {word}: {shown}{more}"] if ids else []
    return lines

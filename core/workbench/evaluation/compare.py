"""Compares any two evaluations, runs or candidates, row by row, by the paired test of the proof."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import StoreError
from workbench.evaluation.rows import COSTS, find_candidate, read_rows
from workbench.proof import LEVEL, MARGIN, Proof, paired_proof
from workbench.store import Evaluations, Store, kind_of, read_report

#: Rows that changed sides are listed up to this many.
LISTED_ROWS = 20


@dataclass(frozen=True)
class ScoredRow:
    """A row of a side: its mean score over the repeats, None if no repeat was answered."""

    example: str
    score: float | None
    cluster: str


@dataclass(frozen=True)
class Side:
    """What is compared: the rows of an evaluation, or of a candidate in a run, by a key that is equal for equal rows.

    cost: means per row of tokens, calls, usd, seconds, where they are stored.
    """

    name: str
    run: str
    split: str
    workflow: str
    data_hash: str | None
    rows: Mapping[str, ScoredRow]
    cost: Mapping[str, float]
    label: str = ""

    @property
    def score(self) -> float:
        """The mean over all rows; one that was not answered counts as 0."""
        return math.fsum(row.score or 0.0 for row in self.rows.values()) / max(1, len(self.rows))


@dataclass
class Difference:
    """The second side against the first, on the rows that both have.

    Attributes:
        proof: the paired test by itself.
        p: adjusted for the number of comparisons (Holm).
        better, worse: ids of rows that score higher, and lower, on the second side.
        only: rows that only one side has.
    """

    first: str
    second: str
    proof: Proof
    p: float
    better: list[str] = field(default_factory=list[str])
    worse: list[str] = field(default_factory=list[str])
    only: int = 0

    @property
    def shown(self) -> str:
        """`gain`, `loss`, or nothing where no difference is shown."""
        if self.proof.shown and self.p < LEVEL:
            return "gain"
        return "loss" if self.p < LEVEL and self.proof.ci95[1] < 0 else ""

    def as_dict(self) -> dict[str, Any]:
        proof = self.proof
        return {
            "first": self.first,
            "second": self.second,
            "diff": proof.diff,
            "ci95": list(proof.ci95),
            "p": self.p,
            "shown": self.shown,
            "test": proof.test,
            "rows": proof.n_rows,
            "clusters": proof.n,
            "excluded": proof.n_excluded,
            "only": self.only,
            "better": self.better,
            "worse": self.worse,
        }


def read_side(store: Store, name: str) -> Side:
    """A side by name: RUN, RUN:CANDIDATE (a hash or its beginning, `baseline` or `winner`), each with @SPLIT.

    Without a split: that of the evaluation; of a run of `optimize` test if it has been tested, else val. RUN may be a
    name, its beginning, a tag, or `last`.

    Raises:
        StoreError: there is no such run, or it has no rows.
    """
    place, _, split = name.partition("@")
    run, _, candidate = place.partition(":")
    row = store.find_run(run)
    report = read_report(row)
    hash_ = find_candidate(store, row, report, candidate)
    if hash_ is None and kind_of(row) != "eval":
        raise StoreError(
            f"run {row['run']} ({kind_of(row)}) has no result yet; name a candidate of it, as in RUN:baseline"
        )
    there = list(dict.fromkeys(e["split"] for e in Evaluations(store, row["id"]).list_all() if e["candidate"] == hash_))
    if not split:
        split = next((s for s in ("test", "val") if s in there), there[0] if there else "")
    rows = read_rows(store, row, report, hash_, split=split, parsed=("cost",))
    if not rows:
        offered = f"; it has rows of {', '.join(there)}" if there else ""
        what = f"{split or 'any split'}" + (f" by {candidate}" if candidate else "")
        raise StoreError(f"run {row['run']} ({kind_of(row)}) has stored no rows of {what}{offered}")
    label = report["label"] if report and report.get("kind") == "eval" else ""
    means = _mean_costs(rows)
    return Side(name, row["run"], split, str(hash_), row["data_hash"], _by_key(rows), means, label)


def _by_key(rows: Sequence[Mapping[str, Any]]) -> dict[str, ScoredRow]:
    """The rows by key, repeats together. Equal rows of one split get keys that differ by a running number. Rows that
    older versions stored are known by their ids."""
    repeats: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        repeats[row["example"]].append(row)
    found, seen = dict[str, ScoredRow](), defaultdict[str, int](int)
    for example, same in repeats.items():
        key = same[0]["row_key"] or f"id {example}"
        seen[key] += 1
        scores = [r["score"] for r in same if r["score"] is not None]
        mean = math.fsum(scores) / len(scores) if scores else None
        found[f"{key} {seen[key]}"] = ScoredRow(example, mean, same[0]["cluster"] or key)
    return found


def _mean_costs(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    costs = [row["cost"] for row in rows if row["cost"]]
    return {n: math.fsum(float(c.get(n, 0)) for c in costs) / len(costs) for n in COSTS} if costs else {}


def compare_sides(sides: Sequence[Side]) -> list[Difference]:
    """Each side but the first against the first. With several, p is adjusted by Holm's method: S. Holm, A simple
    sequentially rejective multiple test procedure, 1979.

    Raises:
        StoreError: two sides share no rows.
    """
    first, others = sides[0], sides[1:]
    paired = [_pair(first, other) for other in others]
    plain = [_test(rows) for rows, _ in paired]
    order = sorted(range(len(others)), key=lambda i: plain[i].p)
    found: dict[int, Difference] = {}
    adjusted = 0.0
    for rank, index in enumerate(order):
        left = len(others) - rank
        adjusted = max(adjusted, min(1.0, plain[index].p * left))
        rows, only = paired[index]
        changed = [(a, b) for a, b in rows if a.score is not None and b.score is not None and a.score != b.score]
        found[index] = Difference(
            first.name,
            others[index].name,
            plain[index],
            adjusted,
            better=[b.example for a, b in changed if (b.score or 0) > (a.score or 0)],
            worse=[b.example for a, b in changed if (b.score or 0) < (a.score or 0)],
            only=only,
        )
    return [found[i] for i in range(len(others))]


def _pair(first: Side, other: Side) -> tuple[list[tuple[ScoredRow, ScoredRow]], int]:
    """The rows that both sides have, and how many only one has."""
    shared = [key for key in first.rows if key in other.rows]
    if not shared:
        why = (
            "they are of different data"
            if first.data_hash != other.data_hash
            else "they are of different splits; RUN@SPLIT names another one, e.g. " + f"{first.run}@{other.split}"
        )
        raise StoreError(f"{first.name} ({first.split}) and {other.name} ({other.split}) share no rows: {why}")
    return [(first.rows[k], other.rows[k]) for k in shared], len(first.rows) + len(other.rows) - 2 * len(shared)


def _test(rows: Sequence[tuple[ScoredRow, ScoredRow]]) -> Proof:
    return paired_proof([a.score for a, _ in rows], [b.score for _, b in rows], clusters=[a.cluster for a, _ in rows])


def not_worse(first: Side, second: Side, margin: float = MARGIN) -> tuple[bool, Difference]:
    """Non-inferiority: whether the second side rules out a loss of `margin` or more against the first, at the 2.5%
    level, on all rows of the first. Rows that the second lacks count as in the proof: by the worst case."""
    rows, _ = _pair(first, second)
    lacking = [row for key, row in first.rows.items() if key not in second.rows]
    rows += [(row, ScoredRow(row.example, None, row.cluster)) for row in lacking]
    proof = _test(rows)
    return proof.lowest > -margin, Difference(first.name, second.name, proof, proof.p)


def comparison_lines(sides: Sequence[Side], differences: Sequence[Difference], rows: bool = False) -> list[str]:
    """The comparison as plain text: a numbered table of the sides, then what differs. rows: with the ids of rows that
    changed sides."""
    names = [side.label or side.name for side in sides]
    lines = ["    run       split  rows  score     tokens  usd/row"]
    for number, (side, name) in enumerate(zip(sides, names, strict=True), start=1):
        cost = f"{side.cost['tokens']:>8.0f}  {side.cost['usd']:.6f}" if side.cost else " " * 18
        shown = "" if name == side.run else f"  {name}"
        cells = (f"{number:>2}", f"{side.run:<8}", f"{side.split:<5}", f"{len(side.rows):>4}", f"{side.score:.3f}")
        lines.append(f"{'  '.join(cells)}  {cost}{shown}".rstrip())
    for number, found in enumerate(differences, start=2):
        lines += ["", *_difference_lines(number, found, len(differences), rows)]
    return lines


def _difference_lines(place: int, found: Difference, number: int, rows: bool) -> list[str]:
    proof = found.proof
    verdict = {"gain": "better", "loss": "WORSE", "": "no difference is shown"}[found.shown]
    adjusted = f", by Holm's method for {number} comparisons" if number > 1 else ""
    lines = [
        f"{place} against 1: {proof.diff:+.3f} [{proof.ci95[0]:+.3f}, {proof.ci95[1]:+.3f}] on {proof.n_rows} "
        f"rows, p = {found.p:.2g} ({proof.test}{adjusted}): {verdict}",
        f"  {len(found.better)} rows better, {len(found.worse)} worse",
    ]
    if proof.n_excluded:
        lines.append(f"  {proof.n_excluded} rows are left out: infrastructure failed on one side or both")
    if found.only:
        lines.append(f"  {found.only} rows are on one side only, and left out")
    for word, ids in (("better", found.better), ("worse", found.worse)) if rows else ():
        more = f" and {len(ids) - LISTED_ROWS} more" if len(ids) > LISTED_ROWS else ""
        lines += [f"  {word}: {', '.join(ids[:LISTED_ROWS])}{more}"] if ids else []
    return lines

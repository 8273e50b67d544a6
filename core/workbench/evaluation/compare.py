"""Compares any two evaluations, runs or candidates, row by row, by the paired test of the proof.

Rows by whose scores a side was chosen say nothing of it: they are left out, or the comparison is no evidence.
One file: sides of all three kinds are read, paired and tested by the same rules.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import StoreError
from workbench.evaluation.rows import COSTS, find_candidate, read_rows
from workbench.proof import LEVEL, MARGIN, Proof, paired_proof
from workbench.store import Evaluations, Store, find_choices, kind_of, read_report


@dataclass(frozen=True)
class ScoredRow:
    """A row of a side: its mean score over the repeats, None if no repeat has a result."""

    example: str
    score: float | None
    cluster: str


@dataclass(frozen=True)
class Side:
    """A side of a comparison: the rows of an evaluation, or of a candidate in a run, by a key that is equal for equal
    rows.

    cost: means per row of tokens, calls, usd, seconds, where they are stored and known. chosen: of rows that took part
    in choosing the workflow, as val or train of a run of `optimize` that proposed it, the name of that run.
    """

    name: str
    run: str
    split: str
    workflow: str
    data_hash: str | None
    rows: Mapping[str, ScoredRow]
    cost: Mapping[str, float]
    label: str = ""
    chosen: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def scores(self) -> list[float]:
        return [row.score for row in self.rows.values() if row.score is not None]

    @property
    def score(self) -> float:
        """The mean over the rows that have a result."""
        return math.fsum(self.scores) / max(1, len(self.scores))


@dataclass
class Difference:
    """The second side against the first, on the rows that both have.

    Attributes:
        proof: the paired test by itself.
        p: adjusted for the number of comparisons (Holm).
        better, worse: ids of rows that score higher, and lower, on the second side.
        only: rows that only one side has.
        chosen, chosen_in: rows by whose scores a side was chosen, and the run that did so. They are left out.
        evidence: whether other rows are left. If not, the proof is of these, and shows nothing.
    """

    first: str
    second: str
    proof: Proof
    p: float
    better: list[str] = field(default_factory=list[str])
    worse: list[str] = field(default_factory=list[str])
    only: int = 0
    chosen: int = 0
    chosen_in: str = ""
    evidence: bool = True

    @property
    def shown(self) -> str:
        """`gain`, `loss`, or nothing where no difference is shown."""
        if not self.evidence:
            return ""
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
            "chosen": self.chosen,
            "chosen_in": self.chosen_in,
            "evidence": self.evidence,
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
    keyed, means = _by_key(rows), _mean_costs(rows)
    if report and report.get("unpriced"):
        means.pop("usd", None)  # 0 would pass for free
    chosen = _find_chosen(store, str(hash_), row["data_hash"], keyed)
    return Side(name, row["run"], split, str(hash_), row["data_hash"], keyed, means, label, chosen)


def _find_chosen(store: Store, workflow: str, data_hash: str | None, rows: Mapping[str, ScoredRow]) -> dict[str, str]:
    """The rows that took part in choosing a workflow, with the run that did so."""
    by_key, by_id = dict[str, str](), dict[str, str]()
    for found in find_choices(store, workflow):
        if found["row_key"] is not None:
            by_key[found["row_key"]] = found["run"]
        if found["data_hash"] == data_hash:
            by_id[found["example"]] = found["run"]
    made: dict[str, str] = {}
    for key, row in rows.items():
        if run := by_key.get(key.rpartition(" ")[0]) or by_id.get(row.example):
            made[key] = run
    return made


def _by_key(rows: Sequence[Mapping[str, Any]]) -> dict[str, ScoredRow]:
    """The rows by key, repeats together. Equal rows of one split get keys that differ by a running number."""
    repeats: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        repeats[row["example"]].append(row)
    found, seen = dict[str, ScoredRow](), defaultdict[str, int](int)
    for example, same in repeats.items():
        key = same[0]["row_key"]
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
    plain = [_test(pair.rows) for pair in paired]
    order = sorted(range(len(others)), key=lambda i: plain[i].p)
    found: dict[int, Difference] = {}
    adjusted = 0.0
    for rank, index in enumerate(order):
        left = len(others) - rank
        adjusted = max(adjusted, min(1.0, plain[index].p * left))
        pair = paired[index]
        scored = [(a.score, b.score, b.example) for a, b in pair.rows if a.score is not None and b.score is not None]
        found[index] = Difference(
            first.name,
            others[index].name,
            plain[index],
            adjusted,
            better=[example for before, after, example in scored if after > before],
            worse=[example for before, after, example in scored if after < before],
            only=pair.only,
            **pair.choice,
        )
    return [found[i] for i in range(len(others))]


@dataclass(frozen=True)
class _Pair:
    """The rows of two sides that are compared. only: how many one side alone has. choice: fields of a Difference."""

    rows: list[tuple[ScoredRow, ScoredRow]]
    only: int
    choice: dict[str, Any]


def _pair(first: Side, other: Side, lacking: bool = False) -> _Pair:
    """The rows that both sides have, without those by which a side was chosen, if any are left. lacking: with those
    that the second side lacks."""
    shared = [key for key in first.rows if key in other.rows]
    if not shared:
        why = (
            "they are of different data"
            if first.data_hash != other.data_hash
            else "they are of different splits; RUN@SPLIT names another one, e.g. " + f"{first.run}@{other.split}"
        )
        raise StoreError(f"{first.name} ({first.split}) and {other.name} ({other.split}) share no rows: {why}")
    asked = [*first.rows] if lacking else shared
    runs = {key: run for key in asked if (run := first.chosen.get(key) or other.chosen.get(key))}
    kept = [key for key in asked if key not in runs]
    evidence = any(key in other.rows for key in kept)
    rows = [
        (one, other.rows.get(key) or ScoredRow(one.example, None, one.cluster))
        for key, one in ((key, first.rows[key]) for key in (kept if evidence else asked))
    ]
    choice = {"chosen": len(runs), "chosen_in": next(iter(runs.values()), ""), "evidence": evidence}
    return _Pair(rows, len(first.rows) + len(other.rows) - 2 * len(shared), choice)


def _test(rows: Sequence[tuple[ScoredRow, ScoredRow]]) -> Proof:
    return paired_proof([a.score for a, _ in rows], [b.score for _, b in rows], clusters=[a.cluster for a, _ in rows])


def not_worse(first: Side, second: Side, margin: float = MARGIN) -> tuple[bool, Difference]:
    """Non-inferiority: whether the second side rules out a loss of `margin` or more against the first, at the 2.5%
    level, on all rows of the first. Rows that the second lacks count as in the proof: by the worst case. Not where all
    rows took part in choosing a side."""
    pair = _pair(first, second, lacking=True)
    found = Difference(first.name, second.name, proof := _test(pair.rows), proof.p, **pair.choice)
    return found.evidence and proof.lowest > -margin, found

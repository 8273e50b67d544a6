"""Comparisons of any two evaluations, runs or candidates, row by row, with the paired test of the proof.

Rows whose scores led to the choice of a side are no evidence for it. They are left out; if no others are left, the
comparison is no evidence. One file: sides of all three kinds are read, paired and tested by the same rules.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import StoreError
from workbench.evaluation.rows import COSTS, find_candidate, read_rows
from workbench.proof import LEVEL, MARGIN, Claim, paired_proof
from workbench.store import Evaluations, SeenRows, Store, find_choices, kind_of, read_report
from workbench.task import match_rows


@dataclass(frozen=True)
class ScoredRow:
    """A row of a side: its mean score over the repeats, None if no repeat has a result.

    key, texts: identify the row in other data (`workbench.task.match_rows`). label: a hash of its label, or empty.
    """

    example: str
    score: float | None
    cluster: str
    key: str = ""
    label: str = ""
    texts: Mapping[str, Any] | None = None
    handle: str = ""


@dataclass(frozen=True)
class Side:
    """A side of a comparison: the rows of an evaluation, or of a candidate in a run, by id.

    cost: means per row of tokens, calls, usd, seconds, if stored and known. chosen: by row id, the name of the run of
    `optimize` that proposed the workflow and had the row in val or train.
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
        """Return the mean over the rows with a result."""
        return math.fsum(self.scores) / max(1, len(self.scores))


@dataclass
class Difference:
    """The second side against the first, on the rows that both have.

    Attributes:
        proof: the paired test by itself.
        p: adjusted for the number of comparisons (Holm).
        better, worse: ids of rows that score higher, and lower, on the second side.
        only: the number of rows that only one side has.
        chosen, chosen_in: the number of rows whose scores led to the choice of a side, and the run that made it. They
            are left out.
        evidence: True if other rows are left. If not, the proof covers the chosen rows and shows nothing.
    """

    first: str
    second: str
    proof: Claim
    p: float
    better: list[str] = field(default_factory=list[str])
    worse: list[str] = field(default_factory=list[str])
    only: int = 0
    chosen: int = 0
    chosen_in: str = ""
    evidence: bool = True

    @property
    def shown(self) -> str:
        """Return `gain` or `loss`, or an empty text if no difference is shown."""
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


#: A comparison with the bar of a gate, and whether it was passed (`not_worse`).
Compared = tuple[bool, Difference] | None


def read_side(store: Store, name: str) -> Side:
    """Read a side by name: RUN or RUN:CANDIDATE (a hash or its prefix, `baseline` or `winner`), optionally with @SPLIT.

    Default split: that of the evaluation; for a run of `optimize`, test if it was tested, else val. RUN may be a name,
    its prefix, a tag, or `last`.

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
    scored, means = _score_rows(store, rows), _mean_costs(rows)
    if report and report.get("unpriced"):
        means.pop("usd", None)  # 0 would make an unpriced model look free
    chosen = _find_chosen(store, str(hash_), row["data_hash"], scored)
    return Side(name, row["run"], split, str(hash_), row["data_hash"], scored, means, label, chosen)


def _find_chosen(store: Store, workflow: str, data_hash: str | None, rows: Mapping[str, ScoredRow]) -> dict[str, str]:
    """Return the rows that took part in choosing a workflow, each with the run that chose it."""
    by_id, by_key = find_choices(store, workflow, data_hash)
    made = {name: run for name, row in rows.items() if (run := by_id.get(row.example) or by_key.get(row.key))}
    others = [(name, row.texts) for name, row in rows.items() if name not in made and row.texts is not None]
    found = match_rows(SeenRows(store).read_texts(of=by_key), others)
    return made | {name: by_key[key] for name, key in found.items()}


def _score_rows(store: Store, rows: Sequence[Mapping[str, Any]]) -> dict[str, ScoredRow]:
    """Return the rows by id, with their repeats merged."""
    repeats: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        repeats[row["example"]].append(row)
    texts = dict(SeenRows(store).read_texts(of={(row["row_key"] or "").partition(" ")[0] for row in rows}))
    found = dict[str, ScoredRow]()
    for example, same in repeats.items():
        key, _, label = (same[0]["row_key"] or "").partition(" ")
        scores = [r["score"] for r in same if r["score"] is not None]
        mean = math.fsum(scores) / len(scores) if scores else None
        cluster = same[0]["cluster"] or key or example
        found[example] = ScoredRow(example, mean, cluster, key, label, texts.get(key), same[0]["handle"])
    return found


def _mean_costs(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return means over the rows with a result, as in the report of an eval; over all rows if there are none."""
    scored = [row for row in rows if row["score"] is not None] or rows
    costs = [row["cost"] for row in scored if row["cost"]]
    return {n: math.fsum(float(c.get(n, 0)) for c in costs) / len(costs) for n in COSTS} if costs else {}


def compare_sides(sides: Sequence[Side]) -> list[Difference]:
    """Compare each other side with the first. For several, p is adjusted by Holm's method: S. Holm, A simple
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
    """The rows of two sides to compare. only: the number of rows on one side alone. choice: fields of a Difference."""

    rows: list[tuple[ScoredRow, ScoredRow]]
    only: int
    choice: dict[str, Any]


def _pair(first: Side, other: Side, missing: bool = False) -> _Pair:
    """Return the rows that both sides have, without those that led to the choice of a side if any others are left.
    missing: include rows that are missing on the second side."""
    same = _match(first, other)
    if not same:
        why = (
            "they are of different data"
            if first.data_hash != other.data_hash
            else "they are of different splits; RUN@SPLIT names another one, e.g. " + f"{first.run}@{other.split}"
        )
        raise StoreError(f"{first.name} ({first.split}) and {other.name} ({other.split}) share no rows: {why}")
    asked = [*first.rows] if missing else [*same]
    runs = {key: run for key in asked if (run := first.chosen.get(key) or other.chosen.get(same.get(key, "")))}
    kept = [key for key in asked if key not in runs]
    evidence = any(key in same for key in kept)
    rows = [
        (one, other.rows[same[key]] if key in same else ScoredRow(one.example, None, one.cluster))
        for key, one in ((key, first.rows[key]) for key in (kept if evidence else asked))
    ]
    choice = {"chosen": len(runs), "chosen_in": next(iter(runs.values()), ""), "evidence": evidence}
    return _Pair(rows, len(first.rows) + len(other.rows) - 2 * len(same), choice)


def _match(first: Side, other: Side) -> dict[str, str]:
    """Match the rows of one side to the same rows of the other, each once. In one data set rows match by id. Otherwise
    the rule of the splits applies: equal rows first, then near copies. Rows with different labels never match."""
    if first.data_hash is not None and first.data_hash == other.data_hash:
        return {name: name for name in first.rows if name in other.rows}
    labelled = all(any(row.label for row in side.rows.values()) for side in (first, other))
    theirs = _by_label(other, labelled)
    same = dict[str, str]()
    for label, rows in _by_label(first, labelled).items():
        left = dict(theirs.get(label, {}))
        equal = defaultdict[str, list[str]](list)
        for name, row in left.items():
            equal[row.key].append(name)
        for name, row in rows.items():
            if row.key and equal[row.key]:
                same[name] = equal[row.key].pop(0)
                del left[same[name]]
        asked = [(name, row.texts) for name, row in rows.items() if name not in same and row.texts is not None]
        near = match_rows(asked, [(name, row.texts) for name, row in left.items() if row.texts is not None])
        for name, found in near.items():
            same.setdefault(found, name)
    return {name: same[name] for name in first.rows if name in same}


def _by_label(side: Side, labelled: bool) -> dict[str, dict[str, ScoredRow]]:
    found = defaultdict[str, dict[str, ScoredRow]](dict)
    for name, row in side.rows.items():
        found[row.label if labelled else ""][name] = row
    return found


def _test(rows: Sequence[tuple[ScoredRow, ScoredRow]]) -> Claim:
    return paired_proof([a.score for a, _ in rows], [b.score for _, b in rows], clusters=[a.cluster for a, _ in rows])


def not_worse(first: Side, second: Side, margin: float = MARGIN) -> tuple[bool, Difference]:
    """Test for non-inferiority: return True if the second side rules out a loss of `margin` or more against the first,
    at the 2.5% level, on all rows of the first; and the difference. Rows that are missing on the second side count as
    in the proof, by the worst case. False if all rows took part in choosing a side."""
    pair = _pair(first, second, missing=True)
    found = Difference(first.name, second.name, proof := _test(pair.rows), proof.p, **pair.choice)
    return found.evidence and proof.lowest > -margin, found

"""Facts about a run, read from its database. The run's own code is not loaded."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import StoreError
from workbench.evaluation import Difference, Side, add_details, compare_sides, read_rows, read_side
from workbench.proof import LearningCurve, read_learning_curves
from workbench.run import candidate_workflow, candidates, lineage, origin_of, row_inputs, winner_of
from workbench.store import Candidates, RunRecord, Store, kind_of, list_attributions, read_report, typed
from workbench.workflow import Workflow
from workbench_view.noise import noise_band

#: Maximum characters of traces of changed rows; further rows come without traces.
MAX_TRACES = 2_000_000


@dataclass(frozen=True)
class ChangedRow:
    """A sealed row that baseline and winner score differently. before, after: as returned by `add_details`; None if
    other traces have used up the room."""

    example: str
    scores: tuple[float, float]
    inputs: Mapping[str, Any] | None
    outputs: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    handle: str = ""

    @property
    def gain(self) -> float:
        return self.scores[1] - self.scores[0]


@dataclass(frozen=True)
class Point:
    """A candidate that was evaluated on val: the model calls paid until then, and its objectives."""

    candidate: str
    calls: int
    score: float
    cost: Mapping[str, float]


@dataclass(frozen=True)
class Summary:
    """A run of `optimize`, without its rows.

    Attributes:
        run: name, file, started, finished, host, version, seed, data_hash and others of its row.
        verdict: the first lines of its report, beginning with the verdict.
        noise: 95% range of the difference of two identical variants on the sealed rows; None without rows that differ.
        points: in the order of their evaluation.
        tree: (depth, candidate), each after its parent.
        before, after: the workflows.
        machine: system, processors, python and packages, of each process that worked on the run.
        curves: of trainings.
        decisive: lines on the nodes that decide failures and the settings that decide scores, if that was examined.
    """

    run: Mapping[str, Any]
    report: Mapping[str, Any]
    verdict: Sequence[str]
    noise: float | None
    points: Sequence[Point]
    tree: Sequence[tuple[int, Mapping[str, Any]]]
    before: Workflow | None
    after: Workflow | None
    machine: Sequence[Mapping[str, Any]]
    decisive: Sequence[str]
    curves: Sequence[LearningCurve]

    @property
    def changes(self) -> list[tuple[str, Any, Any]]:
        """Return (address, value before, value after), without settings that only spell out a default."""
        return [(address, old, new) for address, old, new in self.report["changes"]]

    @property
    def has_agent(self) -> bool:
        """Return True if a node is an existing agent, whose texts are written back or replaced in its requests."""
        nodes = self.after.nodes.values() if self.after is not None else ()
        return any(node.get("kind") == "external" for node in nodes)

    @property
    def tested(self) -> bool:
        """Return True if the sealed rows were tested."""
        return self.report["best"]["test"]["score"] is not None


@dataclass(frozen=True)
class Facts(Summary):
    """A run of `optimize`, with its sealed rows.

    sides: baseline and winner on the sealed rows; None if these were not tested.
    inputs, answers: by row, the inputs of the workflow, if known, and the answer of each side.
    """

    sides: tuple[Side, Side] | None
    difference: Difference | None
    changed: Sequence[ChangedRow]
    inputs: Mapping[str, Mapping[str, Any]]
    answers: tuple[Mapping[str, Mapping[str, Any]], ...]


def read_facts(store: Store, name: str) -> Facts:
    """Read the facts of a run. Raises StoreError if there is none, if it has no report, or if it is damaged."""
    row = store.find_run(name, kinds=("optimize",))
    report = read_report(row)
    if kind_of(row) != "optimize":
        raise StoreError(f"run {row['run']} is one of `{kind_of(row)}`; these are the facts of `optimize`")
    if report is None:
        why = {"ready": "it has not started", "running": "it is running"}.get(row["status"], "it was cut short")
        raise StoreError(
            f"run {row['run']} has no report: {why}; see: {typed('workbench show ' + row['run'], store.path)}"
        )
    sides = _sides(store, row["run"])
    results = [_results(store, row, report, side) for side in sides or ()]
    return Facts(
        **vars(read_summary(store, row, report, _noise(sides) if sides is not None else None)),
        sides=sides,
        difference=compare_sides(sides)[0] if sides is not None else None,
        changed=_changed_rows(store, row, sides, results) if sides is not None else [],
        inputs=row_inputs(store, row) if sides is not None else {},
        answers=tuple({name: one["prediction"] or {} for name, one in side.items()} for side in results),
    )


def read_summary(store: Store, row: Any, report: Mapping[str, Any], noise: float | None) -> Summary:
    """Read the facts about a run except its rows. Raises StoreError if it is damaged."""
    found = candidates(store, row["id"])
    run = {key: row[key] for key in row.keys() if key not in ("report", "spec", "checksum", "spec_checksum")}  # noqa: SIM118
    origin = origin_of(row)
    return Summary(
        run={**run, "branched_from": f"{origin['run']}:{origin['candidate'][:8]}" if origin else None},
        report=report,
        verdict=_verdict(report),
        noise=noise,
        points=_points(store, row["id"], found),
        tree=lineage(found),
        before=candidate_workflow(store, row["id"], Candidates(store, row["id"]).find_baseline()),
        after=candidate_workflow(store, row["id"], winner_of(report)),
        machine=_machines(store, row["id"]),
        decisive=_decisive(store, row),
        curves=read_learning_curves(store, row["id"]),
    )


def _machines(store: Store, run_id: int) -> list[Mapping[str, Any]]:
    """Return each machine once, in the order of the processes."""
    found: list[Mapping[str, Any]] = []
    for one in RunRecord(store, run_id).read_events("machine"):
        packages = one.get("packages")
        told = {key: one[key] for key in ("system", "processors", "python") if key in one}
        if isinstance(packages, dict):
            told["packages"] = ", ".join(f"{name} {version}" for name, version in packages.items())
        if told not in found:
            found.append(told)
    return found


def _decisive(store: Store, row: Any) -> list[str]:
    """Return which nodes decide failures and which settings the scores, according to optimizers and to `workbench agent
    attribute`."""
    lines = list[str]()
    for event in RunRecord(store, row["id"]).read_events("optimizer_told"):
        message = str(event.get("message", ""))
        if message.startswith(("failures are decided by", "share of each setting")):
            where = "train" if message.startswith("failures") else "val"
            lines.append(f"{event.get('optimizer')}, on {where} rows: {message}")
    for one in list_attributions(store):
        report: Mapping[str, Any] = read_report(one) or {}
        if report.get("kind") == "attribute" and row["run"] in report["examined"]:
            nodes = Counter(str(found["node"]) for found in report["rows"] if found["node"])
            told = ", ".join(f"{node} {n}" for node, n in nodes.most_common()) or "no node"
            lines.append(f"run {one['run']} ({report['method']}), failed rows by node: {told}")
    return list(dict.fromkeys(lines))


def _verdict(report: Mapping[str, Any]) -> list[str]:
    """Return the first lines of a report, beginning with the verdict, without the name of the run."""
    lines = [str(line) for line in report.get("lines", [])]
    head = lines[: lines.index("")] if "" in lines else lines[:3]
    return head[1:] or head


def _sides(store: Store, run: str) -> tuple[Side, Side] | None:
    """Return baseline and winner on the sealed rows."""
    try:
        return read_side(store, f"{run}:baseline@test"), read_side(store, f"{run}:winner@test")
    except StoreError:  # nothing was tested, or the rows were pruned
        return None


def _noise(sides: tuple[Side, Side]) -> float | None:
    first, second = (side.rows for side in sides)
    shared = [(first[key].score, second[key].score) for key in first if key in second]
    return noise_band([b - a for a, b in shared if a is not None and b is not None])


def _points(store: Store, run_id: int, found: Sequence[Mapping[str, Any]]) -> list[Point]:
    known = {c["hash"]: c for c in found if c["val"] is not None}
    calls: dict[str, int] = {}
    for event in RunRecord(store, run_id).read_events("evaluated"):
        calls.setdefault(str(event.get("candidate")), int(event.get("calls", 0)))  # later ones are of replays
    made: list[Point] = []
    for hash_, at in sorted(calls.items(), key=lambda item: item[1]):
        if hash_ in known:
            cost = json.loads(known[hash_]["objectives"] or "{}")
            made.append(Point(hash_, at, float(known[hash_]["val"]), cost))
    return made


def _results(store: Store, row: Any, report: Mapping[str, Any], side: Side) -> dict[str, dict[str, Any]]:
    return {r["example"]: r for r in read_rows(store, row, report, side.workflow) if r["split"] == side.split}


def _changed_rows(
    store: Store, row: Any, sides: tuple[Side, Side], results: Sequence[Mapping[str, dict[str, Any]]]
) -> list[ChangedRow]:
    """Return the changed rows: losses, then gains, the largest first."""
    first, second = (side.rows for side in sides)
    differ = [
        (b.score - a.score, (a.score, b.score), a, b)
        for a, b in ((first[key], second[key]) for key in first if key in second)
        if a.score is not None and b.score is not None and not math.isclose(a.score, b.score)
    ]
    differ.sort(key=lambda found: (found[0] > 0, -abs(found[0]), found[2].example))
    pairs = [(results[0][a.example], results[1][b.example]) for *_, a, b in differ]
    add_details(store, row, [one for pair in pairs for one in pair])
    made: list[ChangedRow] = []
    room = MAX_TRACES
    for (_, scores, a, _), (before, after) in zip(differ, pairs, strict=True):
        outputs = (before["prediction"], after["prediction"])
        traces = (before, after) if room > 0 else (None, None)
        made.append(ChangedRow(a.example, scores, before["inputs"], outputs, *traces, before["handle"]))
        room -= len(json.dumps([before["spans"], after["spans"]], default=str))
    return made

"""False claims of whole runs of `workbench optimize` in worlds without a gain, and true ones beside them.

    python contrib/bench/promises/null_runs.py [--runs 200] [--world NAME ...] [--out FILE]

Each world is a way in which a test can be set up wrongly: an agent or a cache that remembers, copies and conversations
in the test, rows that were val before, rare dear rows, timeouts on one side, branches. In the null column the change
does nothing, and at most 5% of the runs may claim anything (upper end of the exact 95% interval). In the column beside
it the change does what it says. No language model takes part: answers are formulas. Exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from null_worlds import (
    LABELS,
    PLAIN,
    Cached,
    Formula,
    Graded,
    Judged,
    Loops,
    Notes,
    Rows,
    Silent,
    conversations,
    copied_rows,
    other_number,
    other_word,
    plain_rows,
    unseen_character,
)
from scipy.stats import binomtest

from workbench.proof import Report
from workbench.run import Options, branch_run, optimize, resume
from workbench.store import ReadOnlyStore, Store
from workbench_kit.labels import order_items, run_answers


@dataclass(frozen=True)
class World:
    """rows, model: what is tested. spec: further keys of the file. course: the runs; None: one `optimize`."""

    rows: Callable[[random.Random], Rows] = plain_rows
    model: type[Formula] = Formula
    spec: Mapping[str, Any] = field(default_factory=dict)
    course: Callable[[Path, Rows, Formula], bool] | None = None


def write_file(folder: Path, world: World, wordings: int = 6, **more: Any) -> Path:
    file = folder / "workflow.yaml"
    spec = {
        "name": "null",
        "lm": {"model": "openai/formula", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
        "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": PLAIN}},
        "search": {"nodes.sort.instructions": [PLAIN, *(f"Wording {i}." for i in range(wordings))]},
        "optimize": [{"random": {"trials": wordings}}],
        "budget": {"calls": 100_000},
        **world.spec,
        **more,
    }
    file.write_text(json.dumps(spec), encoding="utf-8")
    return file


def run(file: Path, model: Formula, **sets: Any) -> Report:
    options = Options([*sets.items()], str(file.with_name("out.yaml")), allow_unproved=True)
    report = optimize(file, database=file.with_name("runs.db"), pool=model, options=options)
    assert report.status == "finished", report.error
    return report


def val_reused(folder: Path, rows: Rows, model: Formula) -> bool:
    """Sixty wordings are scored on rows as val; then these rows are the test, and the best wording the only one."""
    rows.write(folder, val=rows.test, test=rows.val)
    world = World()
    first = run(write_file(folder, world, 59), model)
    best = str(first.winner.get("nodes.sort.instructions"))
    lucky = [r for r in rows.val if model.is_right(r["text"], best) and not model.is_right(r["text"], PLAIN)]
    rows.write(folder, val=[*lucky, *(r for r in rows.val if r not in lucky)][: max(10, 2 * len(lucky))])
    only = {"nodes.sort.instructions": [PLAIN, best]}
    return run(write_file(folder, world, search=only), model).proved


def branched(folder: Path, rows: Rows, model: Formula) -> bool:
    """A branch from a winner that did badly on the sealed rows: its bad luck is not repeated by the next winner."""
    rows.write(folder)
    first = run(write_file(folder, World()), model)
    if first.proof is None or first.proof.diff > -0.05:
        return first.proved
    database = folder / "runs.db"
    store = Store(database)
    name = branch_run(store, first.run, None, [("seed", 7)])
    store.close()
    options = Options(out=str(folder / "branch.yaml"), allow_unproved=True)
    return first.proved or resume(name, database=database, pool=model, options=options).proved


def labelled(folder: Path, model: Judged, count: int, leave_out: int = 0) -> bool:
    """Whether a claim is made with labels of the first rows of the draw, but those that speak most against it."""
    database = folder / "runs.db"
    store = ReadOnlyStore(str(database))
    items = order_items([(one.cluster, one.item) for one in run_answers(store, "last").answers])
    store.close()
    rows = [*dict.fromkeys(item.row for item in items)][:count]
    said = {(item.row, item.key): model.people(item.row, str(item.answer)) for item in items if item.row in rows}
    gains = {row: sum(s if "new" in str(i.answer) else -s for i in items if i.row == row
                      for s in [said[i.row, i.key]]) for row in rows}  # fmt: skip
    left = {*sorted(rows, key=lambda row: gains[row])[:leave_out]}
    lines = [
        {"row": r, "answer": key, "by": "ann", "score": score} for (r, key), score in said.items() if r not in left
    ]
    (folder / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return resume("last", database=database, pool=model, options=Options(out=str(folder / "out.yaml"))).proved


def labels_peeked_at(folder: Path, rows: Rows, model: Formula) -> bool:
    """Ten labels more, and a look at the report, until it shows a gain."""
    assert isinstance(model, Judged)
    rows.write(folder)
    run(write_file(folder, WORLDS["labels, peeked at"], 1), model)
    return any(labelled(folder, model, count) for count in range(30, 121, 10))


def labels_left_out(folder: Path, rows: Rows, model: Formula) -> bool:
    """Ninety rows are labelled, and the thirty that speak most against the winner deleted."""
    assert isinstance(model, Judged)
    rows.write(folder)
    run(write_file(folder, WORLDS["labels, left out"], 1), model)
    return labelled(folder, model, 90, leave_out=30)


JUDGED = {
    "metric": "judge(label)",
    "nodes": {"sort": {"predict": "text -> label", "instructions": PLAIN}},
    "proof": {"labels": "labels.jsonl"},
}
COSTS = {"pick": "cheapest"}
GRADED = {"metric": "python:graded.py:score", "nodes": {"sort": {"predict": "text -> label", "instructions": PLAIN}}}
WORLDS: dict[str, World] = {
    "plain": World(),
    "remembers": World(model=Notes),
    "cache, tokens": World(model=Cached, spec={"objectives": ["score", "tokens"], **COSTS}),
    "cache, latency": World(model=Cached, spec={"objectives": ["score", "latency"], **COSTS}),
    "copies, a word": World(copied_rows(other_word)),
    "copies, unseen": World(copied_rows(unseen_character)),
    "copies, a number": World(copied_rows(other_number)),
    "conversations": World(conversations("conv")),
    "sessions": World(conversations("meta_session")),
    "val reused": World(course=val_reused),
    "branches": World(course=branched),
    "rare dear rows": World(lambda rng: plain_rows(rng, 120), Loops, {"objectives": ["score", "tokens"], **COSTS}),
    "winner silent": World(model=Silent),
    "graded, skewed": World(model=Graded, spec=GRADED),
    "labels, peeked at": World(lambda rng: plain_rows(rng, 120, 10), Judged, JUDGED, labels_peeked_at),
    "labels, left out": World(lambda rng: plain_rows(rng, 120, 10), Judged, JUDGED, labels_left_out),
}
#: Worlds in which nothing true can be claimed, so that there is no column beside.
WITHOUT_GAIN = {
    "labels, left out",
    "val reused",
    "branches",
    "cache, tokens",
    "cache, latency",
    "copies, a word",
    "copies, unseen",
    "copies, a number",
}


def claims(job: tuple[str, int, bool]) -> bool:
    """Whether one run of a world claims a gain or a saving."""
    name, seed, gain = job
    world, rng = WORLDS[name], random.Random(f"{name}:{seed}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "graded.py").write_text(
            "def score(example, prediction, trace):\n    return float(prediction['label'])\n"
        )
        rows = world.rows(rng)
        model = world.model(rows, seed, gain)
        if world.course is not None:
            return world.course(folder, rows, model)
        rows.write(folder)
        return run(write_file(folder, world, seed=seed), model).proved


def exact(hits: int, runs: int) -> tuple[float, float]:
    found = binomtest(hits, runs).proportion_ci(method="exact")
    return float(found.low), float(found.high)


def measure(name: str, runs: int, pool: ProcessPoolExecutor, seed: int) -> dict[str, Any]:
    false = sum(pool.map(claims, [(name, seed + i, False) for i in range(runs)]))
    row: dict[str, Any] = {"world": name, "runs": runs, "false": false / runs, "false95": exact(false, runs)}
    if name not in WITHOUT_GAIN:
        few = max(1, runs // 4)
        row["true"] = sum(pool.map(claims, [(name, seed + i, True) for i in range(few)])) / few
    return {**row, "missed": row["false95"][1] > 0.05 if runs >= 100 else row["false95"][0] > 0.05}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--world", nargs="*", default=None, help="only those whose name begins so")
    parser.add_argument("--out", type=Path, help="JSON lines")
    args = parser.parse_args()
    missed = False
    print("| world | runs | false | true |\n| --- | --- | --- | --- |", flush=True)
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        for name in WORLDS:
            if args.world is not None and not any(name.startswith(w) for w in args.world):
                continue
            row = measure(name, args.runs, pool, args.seed)
            missed |= row["missed"]
            low, high = row["false95"]
            true = f"{row['true']:.2f}" if "true" in row else ""
            print(f"| {name} | {row['runs']:,} | {row['false']:.3f} [{low:.3f}, {high:.3f}] | {true} |", flush=True)
            if args.out is not None:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    sys.exit(missed)


if __name__ == "__main__":
    main()

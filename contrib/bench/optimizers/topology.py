"""Evaluations until the incumbent of a search has 95% of the best accuracy, in the planted worlds of structure.

    python contrib/bench/optimizers/topology.py [--seeds 20] [--first 0] [--jobs 2] [--val 40] [--most 128] [NAME ...]

Each seed is another problem of 256 structures (`workbench_bench.topology`), the same for all optimizers; no model is
involved. An evaluation is one candidate on the whole of val, the start included; nobody stops evaluations early here,
so that they all cost the same. The incumbent is the best on val so far, as the run would keep it; its accuracy is that
of the planted table. Who never gets there counts with --most.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

MCTS = {"rounds": 1000, "race": False, "patience": 1000, "edits": []}
RUNS: dict[str, Any] = {
    "random": {"random": {"trials": 1000}},
    "optuna": {"optuna": {"trials": 1000, "race": False, "patience": 1000}},
    "mcts": {"mcts": MCTS},
    "mcts_uct": {"mcts": {**MCTS, "policy": "uct"}},
    "mcts_no_surrogate": {"mcts": {**MCTS, "surrogate": "none"}},
}
DEFAULT = ("random", "optuna", "mcts")


class Enough(BaseException):
    """Ends a run that has had its evaluations."""


def one(name: str, seed: int, val: int, most: int) -> dict[str, Any]:
    """One run: evaluations until 95% of the best (None if never), and the incumbent's accuracy at the end."""
    from workbench.run import Options, optimize
    from workbench_bench.run_world import SimulatedPool, _write
    from workbench_bench.worlds import WORLDS

    world = WORLDS["topology"].planted(seed)
    count, best, accuracy, reached = 0, -1.0, 0.0, None

    def listen(event: str, data: dict[str, Any]) -> None:
        nonlocal count, best, accuracy, reached
        if event == "candidate_evaluated" and data["evaluation"].split == "val":
            count += 1
            if data["evaluation"].score > best:
                best = data["evaluation"].score
                accuracy = world.truth(data["evaluation"].workflow) or 0.0
                if accuracy >= 0.95 * world.best and reached is None:
                    reached = count
            if count >= most or reached is not None:
                raise Enough

    with tempfile.TemporaryDirectory() as folder:
        file = _write(Path(folder), world, RUNS[name], 10**7, seed, {"train": 8, "val": val, "test": 8})
        try:
            options = Options(out=str(Path(folder) / "out.yaml"))
            optimize(
                file, options=options, database=Path(folder) / "run.db", pool=SimulatedPool(world), listener=listen
            )
        except (Enough, BaseExceptionGroup):
            pass
    return {"name": name, "seed": seed, "reached": reached, "evaluations": count, "accuracy": accuracy}


def _job(job: tuple[str, int, int, int]) -> dict[str, Any]:
    return one(*job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=DEFAULT, choices=[*RUNS, []])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--val", type=int, default=40)
    parser.add_argument("--most", type=int, default=128)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds)
    jobs = [(name, seed, args.val, args.most) for name in args.names for seed in seeds]
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        found = []
        for done in pool.map(_job, jobs):
            found.append(done)
            print(json.dumps(done), file=sys.stderr, flush=True)
    for name in args.names:
        mine = [f for f in found if f["name"] == name]
        counts = [f["reached"] or args.most for f in mine]
        row = {
            "optimizer": name,
            "mean": round(statistics.mean(counts), 1),
            "median": statistics.median(counts),
            "reached": sum(f["reached"] is not None for f in mine),
            "seeds": len(mine),
            "counts": counts,
        }
        print(json.dumps(row))
        sys.stdout.flush()


if __name__ == "__main__":
    main()

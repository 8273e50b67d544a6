"""What a file gets that names no optimizer, against the default of former versions, in planted worlds.

    python contrib/bench/promises/default_optimizer.py --keep default.jsonl

Regret is the best possible accuracy minus the true accuracy of the winner; no model takes part. Passes if the mean
regret over all worlds and seeds is at most the target, and the mean regret in no world above that of the former
default (bootstrap alone). --keep stores the runs: write a new file after a change of the code.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench_bench.run_world import Map, compute_mean_and_interval, map_in, run_many

WORLDS = ("rules", "conflict", "deceptive", "facets", "retrieval", "settings")
NOW, BEFORE = "default", "bootstrap"
#: The mean regret allowed. The best chain whose first step was limited by hand had 0.070 (3 seeds).
TARGET = 0.08
CALLS = 800


def measure(
    worlds: Sequence[str], seeds: Sequence[int], run_all: Map = map, keep: Path | None = None
) -> dict[str, dict[str, list[float]]]:
    """Regrets by world and default, one for each seed. Raises RuntimeError for a run that failed."""
    found: dict[str, dict[str, list[float]]] = {}
    for world in worlds:
        found[world] = {}
        for optimizer in (NOW, BEFORE):
            runs = run_many([(world, optimizer, CALLS, seed) for seed in seeds], run_all, keep)
            if failed := [run.error for run in runs if run.error is not None]:
                raise RuntimeError(f"{world}, {optimizer}: {failed[0]}")
            found[world][optimizer] = [run.best - run.accuracy for run in runs]
    return found


def missed(found: dict[str, dict[str, list[float]]], target: float = TARGET) -> list[str]:
    """The targets that the regrets miss, in words."""
    means = {world: {name: statistics.mean(values) for name, values in by.items()} for world, by in found.items()}
    over = statistics.mean(by[NOW] for by in means.values())
    wrong = [f"mean regret {over:.3f} > {target}"] if over > target else []
    worse = (world for world, by in means.items() if by[NOW] > by[BEFORE] + 1e-9)
    return [*wrong, *(f"{world}: worse than {BEFORE} alone" for world in worse)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed; the default was chosen by 100 and more")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    with map_in(args.jobs) as run_all:
        found = measure(WORLDS, range(args.first, args.first + args.seeds), run_all, args.keep)
    print(f"| world | regret, {NOW} | regret, {BEFORE} alone |\n| --- | --- | --- |")
    for world, by in found.items():
        cells = (compute_mean_and_interval(by[name]) for name in (NOW, BEFORE))
        print(f"| `{world}` | " + " | ".join(f"{m:.3f} [{low:.3f}, {high:.3f}]" for m, (low, high) in cells) + " |")
    overall = (statistics.mean(statistics.mean(by[name]) for by in found.values()) for name in (NOW, BEFORE))
    print("| mean | " + " | ".join(f"{mean:.3f}" for mean in overall) + " |")
    wrong = missed(found)
    print("\n".join(f"missed: {line}" for line in wrong) or "all targets met")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

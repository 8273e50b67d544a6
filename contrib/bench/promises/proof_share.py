"""The budget divided between search and proof by the run, against fixed shares, in planted worlds.

    python contrib/bench/promises/proof_share.py --keep runs

Each budget pays for the baseline (40 calls), the whole sealed test (120 calls) and one to four candidates. `planned` is
the product; each fixed share reserves that part of the sealed test as long as the budget lasts. What counts is how
often a gain is proved. Passes if `planned` proves as many gains in all as the fixed share that turns out best, less two
of a hundred. No model takes part.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import workbench.run.sealed_test
from workbench_bench.run_world import run_many

WORLDS, CALLS, OPTIMIZER = ("rules", "facets", "conflict", "retrieval"), (200, 260, 340), "default"
PLANNED = workbench.run.sealed_test.plan_test_size
SHARES = {"planned": None, "1": 1.0, "0.7": 0.7, "0.45": 0.45, "0.3": 0.3}


def fix(share: float | None) -> None:
    """Have later runs reserve a fixed share of the sealed test, or plan it (None)."""

    def fixed(rows: int, left: Mapping[str, float], test: Mapping[str, float], *_: object) -> float:
        return min([share or 0.0, *(left[what] / test[what] for what in left if test[what])])

    workbench.run.sealed_test.plan_test_size = PLANNED if share is None else fixed  # type: ignore[assignment]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--worlds", nargs="+", default=[*WORLDS])
    parser.add_argument("--shares", nargs="+", choices=SHARES, default=[*SHARES])
    parser.add_argument("--keep", type=Path, required=True, help="folder of the runs; none is repeated")
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    total: dict[str, list[float]] = defaultdict(list)
    print("| world | calls | " + " | ".join(args.shares) + " |\n" + "| --- " * (2 + len(args.shares)) + "|")
    for world in args.worlds:
        for calls in CALLS:
            cells = list[str]()
            for share in args.shares:
                fix(SHARES[share])
                jobs = [(world, OPTIMIZER, calls, seed) for seed in range(args.seeds)]
                runs = run_many(jobs, keep=args.keep / f"{share}.jsonl")
                if failed := [run.error for run in runs if run.error is not None]:
                    raise RuntimeError(f"{world}, {share}: {failed[0]}")
                total[share].append(fmean(run.claimed for run in runs))
                cells.append(f"{total[share][-1]:.0%} ({fmean(run.best - run.accuracy for run in runs):.3f})")
            print(f"| `{world}` | {calls} | " + " | ".join(cells) + " |", flush=True)
    means = {share: fmean(proved) for share, proved in total.items()}
    print("| mean | | " + " | ".join(f"{mean:.1%}" for mean in means.values()) + " |")
    return 0 if means["planned"] >= max(means.values()) - 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())

"""The budget divided between search and proof by the run, against fixed shares, in planted worlds.

    python contrib/bench/promises/proof_share.py --out proof_share.jsonl

Each budget pays for the baseline (40 calls), the whole sealed test (120 calls) and one to four candidates. `planned` is
the product; each fixed share reserves that part of the sealed test as long as the budget lasts. What counts is how
often a gain is proved. Passes if `planned` proves as many gains in all as the fixed share that turns out best, less two
of a hundred. No model takes part.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

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
    parser.add_argument("--out", type=Path, required=True, help="the runs, a line each; those that it holds are kept")
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    known = {(one["share"], one["world"], one["calls"], one["seed"]): one for one in lines}
    for world in args.worlds:
        for calls in CALLS:
            for share in args.shares:
                fix(SHARES[share])
                for seed in range(args.seeds):
                    if (share, world, calls, seed) not in known:
                        (run,) = run_many([(world, OPTIMIZER, calls, seed)])
                        if run.error is not None:
                            raise RuntimeError(run.error)
                        found = {"regret": run.best - run.accuracy, "proved": run.claimed}
                        known[share, world, calls, seed] = found
                        key = {"share": share, "world": world, "calls": calls, "seed": seed}
                        with args.out.open("a") as file:
                            file.write(json.dumps({**key, **found}) + "\n")
    print("| world | calls | " + " | ".join(args.shares) + " |\n" + "| --- " * (2 + len(args.shares)) + "|")
    total: dict[str, list[float]] = defaultdict(list)
    for world in args.worlds:
        for calls in CALLS:
            cells = list[str]()
            for share in args.shares:
                own = [known[share, world, calls, seed] for seed in range(args.seeds)]
                proved, regret = (sum(float(one[name]) for one in own) / len(own) for name in ("proved", "regret"))
                total[share].append(proved)
                cells.append(f"{proved:.0%} ({regret:.3f})")
            print(f"| `{world}` | {calls} | " + " | ".join(cells) + " |")
    means = {share: sum(proved) / len(proved) for share, proved in total.items()}
    print("| mean | | " + " | ".join(f"{mean:.1%}" for mean in means.values()) + " |")
    return 0 if means["planned"] >= max(means.values()) - 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())

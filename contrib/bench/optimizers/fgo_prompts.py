"""The proposer's prompts as train grows: `fgo`, the same with all rows in one part, and `rewrite` on all rows at once
and on a batch (its default).

    python contrib/bench/optimizers/fgo_prompts.py [--seeds 10] [--jobs 1] [--train 48 96 192]

World `rules`: task and proposer are formulas, and a token is four characters. A run has 500 calls and eight more for
each training row. Calls are those it spent and, of these, the proposer's; mean and peak are of one prompt of the
proposer, total is of a run. The differences are the winner's true accuracy less that of all rows at once, and less that
of `fgo` without dividing, both paired by seed, with 95% bootstrap intervals.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

ALL_AT_ONCE = "rewrite, all rows at once"
UNDIVIDED = "fgo, not divided"
RUNS: dict[str, Any] = {
    "fgo": "fgo",
    UNDIVIDED: {"fgo": {"size": 1000}},
    ALL_AT_ONCE: {"rewrite": {"batch": None}},
    "the same until the calls end": {"rewrite": {"batch": None, "rounds": 1000, "patience": 1000}},
    "rewrite, 16 rows": "rewrite",
}


def one(job: tuple[str, int, int]) -> Any:
    """One run of (name in RUNS, training rows, seed). Raises RuntimeError where it did not end well."""
    from workbench_bench.run_world import run_world
    from workbench_bench.worlds import WORLDS

    name, train, seed = job
    rows = {"train": train, "val": 40, "test": 60}
    found = run_world(WORLDS["rules"], RUNS[name], calls=500 + 8 * train, seed=seed, rows=rows)
    if found.error is not None:
        raise RuntimeError(f"{job}: {found.error}")
    return found


def difference(runs: Sequence[Any], others: Sequence[Any]) -> str:
    """The mean gain of accuracy over others, which are in the same order of seeds; "" for the same runs."""
    from scipy.stats import bootstrap

    if runs is others:
        return ""
    gains = [ours.accuracy - theirs.accuracy for ours, theirs in zip(runs, others, strict=True)]
    low, high = bootstrap((gains,), statistics.mean, vectorized=False, rng=0).confidence_interval
    return f"{statistics.mean(gains):+.3f} [{low:+.3f}, {high:+.3f}]"


def line(name: str, train: int, found: Mapping[str, Sequence[Any]]) -> str:
    """A row of the table; found: by name, the runs with so many training rows."""
    runs = found[name]
    calls, tokens = (sum(r.proposer[what] for r in runs) for what in ("calls", "prompt_tokens"))
    row = [
        train,
        name,
        f"{statistics.mean(r.calls for r in runs):,.0f}",
        f"{calls / len(runs):.1f}",
        f"{tokens / calls:,.0f}",
        f"{max(r.proposer['largest_prompt'] for r in runs):,}",
        f"{tokens / len(runs):,.0f}",
        f"{statistics.mean(r.accuracy for r in runs):.3f}",
        difference(runs, found[ALL_AT_ONCE]),
        difference(runs, found[UNDIVIDED]),
    ]
    return "| " + " | ".join(map(str, row)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--train", type=int, nargs="+", default=[48, 96, 192])
    asked = parser.parse_args()
    jobs = [(name, train, seed) for train in asked.train for name in RUNS for seed in range(asked.seeds)]
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        found = dict(zip(jobs, pool.map(one, jobs), strict=True))
    print(
        "| train | optimizer | calls | proposer's | mean prompt | peak | total | accuracy | against all at once | "
        "against not divided |"
    )
    print("| --- " * 10 + "|")
    for train in asked.train:
        runs = {name: [found[name, train, seed] for seed in range(asked.seeds)] for name in RUNS}
        for name in RUNS:
            print(line(name, train, runs))


if __name__ == "__main__":
    main()

"""Targets: does the picked candidate meet them in truth, is what is said to be shown true, and does `serve` keep them?

    python contrib/bench/promises/service_levels.py [--runs 500] [--out FILE]

Picks and proofs: 24 candidates with known accuracy, dollars and seconds; 60 or 200 rows of val, 300 sealed ones. Told
are the shares of runs in which the pick meets all targets in truth, with the standard error of the rule and without it,
how dear it is against the cheapest that meets them in truth, and in which `shown` is said of a pick that misses one of
them, or that is worse than the best by the margin: at most 5% (each claim at 2.5%).

Load: requests arrive at random, a server has 8 slots, and three configurations differ in time and price. Told are the
share that ends in time, and the mean price, for each configuration alone and for the choice of `serve`. No language
model takes part. Exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from workbench.proof import Ceiling, paired_proof
from workbench.spec import ConfigurationSpec, TargetsSpec
from workbench.study import Aims, Evaluation, Result, pick_by_targets
from workbench.task import Example
from workbench.workflow import Workflow
from workbench_levels.levels import claim_levels, measure_levels
from workbench_serve.under_load import Configurations

Rng = np.random.Generator
MARGIN = 0.05
TARGETS = TargetsSpec(score=0.8, usd=0.004, p95_latency=3.0)
OBJECTIVES = ("score", "usd", "p95_latency")


#: A row costs at most so many times the mean of its candidate.
DEAREST = 1.5


@dataclass(frozen=True)
class Candidate:
    """What is true of a candidate. usd: mean; seconds: median of a log-normal with deviation 0.5 of the logarithm."""

    name: int
    accuracy: float
    usd: float
    seconds: float

    @property
    def p95(self) -> float:
        return self.seconds * float(np.exp(0.5 * 1.6448536))

    @property
    def workflow(self) -> Workflow:
        return Workflow({"lm": str(self.name), "nodes": {}})

    def misses(self) -> bool:
        limits = TARGETS.given
        return self.accuracy < limits["score"] or self.usd > limits["usd"] or self.p95 > limits["p95_latency"]

    def results(self, rng: Rng, difficulty: Any) -> tuple[Result, ...]:
        """Rows whose difficulty is uniform in [0, 1]: candidates mostly fail on the same ones."""
        noise = rng.random(len(difficulty))
        right = np.where(rng.random(len(difficulty)) < 0.7, difficulty, noise) < self.accuracy
        seconds = self.seconds * np.exp(0.5 * rng.standard_normal(len(difficulty)))
        usd = self.usd * rng.uniform(0.5, DEAREST, len(difficulty))
        rows = zip(right, seconds, usd, strict=True)
        return tuple(
            Result(Example(str(i), {}), float(r), usd=float(u), seconds=float(s)) for i, (r, s, u) in enumerate(rows)
        )


def candidates(rng: Rng, n: int = 24) -> list[Candidate]:
    """Better ones tend to be dearer and slower. Many lie close to the targets."""
    accuracy = rng.uniform(0.6, 0.95, n)
    usd = 0.003 * np.exp(3.0 * (accuracy - 0.8) + 0.4 * rng.standard_normal(n))
    seconds = 1.2 * np.exp(1.5 * (accuracy - 0.8) + 0.3 * rng.standard_normal(n))
    return [Candidate(i, float(accuracy[i]), float(usd[i]), float(seconds[i])) for i in range(n)]


Pick = Callable[[Sequence[Evaluation], Aims, Sequence[str]], Evaluation]


def pick_by_values(evaluations: Sequence[Evaluation], aims: Aims, objectives: Sequence[str]) -> Evaluation:
    """The rule without its standard error: who meets the targets by the values on val is taken at its word."""
    meeting = [e for e in evaluations if not aims.shortfalls(e)]
    if meeting:
        return min(meeting, key=lambda e: (e.objectives["usd"], -e.score))
    return pick_by_targets(evaluations, aims, objectives)


def one_run(rng: Rng, val: int, test: int, pick: Pick, margin: float | None) -> dict[str, Any]:
    known = candidates(rng)
    rows = rng.random(val)
    evaluations = [Evaluation(c.workflow, "val", c.results(rng, rows), True) for c in known]
    aims = Aims(TARGETS, max(evaluations, key=lambda e: e.score), margin)
    winner = known[int(pick(evaluations, aims, OBJECTIVES).workflow.tree["lm"])]
    best = known[int(aims.best.workflow.tree["lm"])]
    sealed = rng.random(test)
    first = winner.results(rng, sealed)
    second = first if best == winner else best.results(rng, sealed)
    ceilings = {"usd": Ceiling(DEAREST * max(winner.usd, best.usd), "by the formula")}
    levels = measure_levels(TARGETS, first, range(test), ceilings=ceilings, alpha=0.05)
    loss = None
    if best != winner and margin is not None:
        loss = paired_proof([r.score for r in second], [r.score for r in first], margin=margin)
    shown = claim_levels(levels, loss=loss).shown
    top = max(c.accuracy for c in known)

    def misses(candidate: Candidate, than: float) -> bool:
        return candidate.misses() or (margin is not None and candidate.accuracy <= than - margin)

    able = [c for c in known if not misses(c, top)]
    false = misses(winner, best.accuracy)
    return {
        "possible": bool(able),
        "met": not false,
        "shown": shown,
        "false": shown and false,
        "dearer": winner.usd / min(c.usd for c in able) if able and not false else None,
    }


def measure_picks(
    runs: int, val: int, pick: Pick, margin: float | None = None, seed: int = 0, test: int = 300
) -> dict[str, Any]:
    """Shares over the runs in which some candidate meets the targets; false claims over all of them."""
    found = [one_run(np.random.default_rng([seed, i]), val, test, pick, margin) for i in range(runs)]
    able = [f for f in found if f["possible"]]
    false = sum(f["false"] for f in found)
    interval = binomtest(false, runs).proportion_ci()
    return {
        "runs": runs,
        "val": val,
        "margin": margin,
        "possible": len(able),
        "met": sum(f["met"] for f in able) / len(able),
        "shown": sum(f["shown"] for f in able) / len(able),
        "dearer": float(np.mean([f["dearer"] for f in able if f["dearer"] is not None])),
        "false": false / runs,
        "false95": [float(interval.low), float(interval.high)],
    }


# Load

LIMIT, SLOTS = 3.0, 8
#: (mean seconds, dollars) of each configuration, cheapest first.
CONFIGURATIONS = ((1.2, 0.001), (0.6, 0.003), (0.25, 0.008))
FIGURES = [
    ConfigurationSpec(score=0.85, usd=usd, latency=mean, p95_latency=2.08 * mean, tokens=0.0)
    for mean, usd in CONFIGURATIONS
]


def serve(rate: float, choose: int | None, rng: Rng, requests: int = 4000, slower: float = 1.0) -> dict[str, float]:
    """A queue of SLOTS servers, first come first served.

    Args:
        rate: arrivals a second.
        choose: the place of a configuration; None: as `serve` does it.
        slower: factor on all times, against the figures in the file.
    """
    now = 0.0
    chooser = Configurations(TargetsSpec(p95_latency=LIMIT), FIGURES, SLOTS, clock=lambda: now)
    arrivals = np.cumsum(rng.exponential(1 / rate, requests))
    spread = np.exp(0.5 * rng.standard_normal(requests) - 0.125)
    free, running = [0.0] * SLOTS, list[tuple[float, int, float]]()
    took, paid, chosen = list[float](), list[float](), list[int]()
    for i, arrived in enumerate(arrivals):
        now = max(float(arrived), heapq.heappop(free))
        while running and running[0][0] <= now:
            _, place, seconds = heapq.heappop(running)
            chooser.record(place, seconds)
        waiting = int(np.searchsorted(arrivals, now, side="right")) - i - 1
        place = chooser.choose(now - float(arrived), waiting) if choose is None else choose
        seconds = CONFIGURATIONS[place][0] * float(spread[i]) * slower
        heapq.heappush(free, now + seconds)
        heapq.heappush(running, (now + seconds, place, seconds))
        took.append(now + seconds - float(arrived))
        paid.append(CONFIGURATIONS[place][1])
        chosen.append(place)
    return {
        "in_time": float(np.mean(np.array(took) <= LIMIT)),
        "usd": float(np.mean(paid)),
        "first": float(np.mean(np.array(chosen) == 0)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    out: dict[str, Any] = {"picks": [], "load": []}
    rules = (("with the standard error", pick_by_targets), ("without it", pick_by_values))
    for margin, val, (name, pick) in itertools.product((None, MARGIN), (60, 200), rules):
        row = {"rule": name, **measure_picks(given.runs, val, pick, margin)}
        out["picks"].append(row)
        low, high = row["false95"]
        told = f"met {row['met']:.3f}, shown {row['shown']:.3f}, {row['dearer']:.2f} x the cheapest, false claims "
        print(f"margin {margin or '-':<4} val {val:>3}, {name:<23}: {told}{row['false']:.3f} [{low:.3f}, {high:.3f}]")
    print("\narrivals a second, slower by: configuration: in time, dollars (1,000 requests)")
    for rate, slower in ((3.0, 1.0), (6.0, 1.0), (9.0, 1.0), (12.0, 1.0), (24.0, 1.0), (6.0, 1.5)):
        cells: list[str] = []
        for choose in (0, 1, 2, None):
            row = serve(rate, choose, np.random.default_rng(1), slower=slower)
            out["load"].append({"rate": rate, "slower": slower, "choose": choose, **row})
            cells.append(f"{'chosen' if choose is None else choose}: {row['in_time']:.3f} {1000 * row['usd']:.2f}")
        print(f"  {rate:>4g}, {slower:g}: " + "; ".join(cells))
    if given.out:
        given.out.write_text(json.dumps(out, indent=1))
    return int(any(row["false95"][0] > 0.05 for row in out["picks"]))


if __name__ == "__main__":
    sys.exit(main())

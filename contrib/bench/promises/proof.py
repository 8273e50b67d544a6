"""The level, the coverage and the power of the proof, in simulated worlds whose truth is known.

    python contrib/bench/promises/proof.py [--runs 1000] [--world NAME ...] [--out FILE]

False claims: in each null world the true mean gain is 0, and `shown` must come in at most 5% of the runs (upper end of
the exact 95% interval). Coverage: of the 95% intervals in the same worlds and in worlds with a gain. Power: of the
whole rule at the smallest gain that the proof itself names. No language model takes part. Exits 1 if a target is
missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from workbench.proof import Claim, level_after, paired_proof

Rng = np.random.Generator
Scores = list[float | None]


@dataclass(frozen=True)
class World:
    """draw: (baseline, winner, clusters) of one run. gain: the true mean difference, over clusters."""

    name: str
    draw: Callable[[Rng], tuple[Scores, Scores, list[Any] | None]]
    gain: float = 0.0


def binary(rng: Rng, n: int, wins: float, losses: float) -> tuple[Scores, Scores, None]:
    kind = rng.choice(4, size=n, p=[wins, losses, (1 - wins - losses) / 2, (1 - wins - losses) / 2])
    return [float(k in (1, 2)) for k in kind], [float(k in (0, 2)) for k in kind], None


def graded(rng: Rng, n: int, deviation: float, gain: float = 0.0, grid: int = 0) -> tuple[Scores, Scores, None]:
    baseline = rng.uniform(0.35, 0.65, n)
    winner = baseline + gain + np.clip(rng.normal(0, deviation, n), -0.3, 0.3)
    if grid:
        winner, baseline = np.round(rng.random(n) * grid) / grid, np.round(rng.random(n) * grid) / grid
    return baseline.tolist(), np.clip(winner, 0, 1).tolist(), None


def skewed(rng: Rng, n: int, lost: float, noise: float = 0.0) -> tuple[Scores, Scores, None]:
    """A small gain on most rows, a rare loss of everything: the mean gain is 0."""
    gain = 0.9 * lost / (1 - lost)
    winner = np.where(
        rng.random(n) < lost, 0.0, 0.9 + gain + np.clip(rng.normal(0, noise, n), -0.05, 0.05) if noise else 0.9 + gain
    )
    return [0.9] * n, np.clip(winner, 0, 1).tolist(), None


def repeated(rng: Rng, n: int, times: int) -> tuple[Scores, Scores, list[Any]]:
    """n rows, each of which stands so many times in the test."""
    a, b, _ = binary(rng, n, 0.2, 0.2)
    return (
        [s for s in a for _ in range(times)],
        [s for s in b for _ in range(times)],
        [i for i in range(n) for _ in range(times)],
    )


def clustered(rng: Rng, clusters: int, size: int, effect: float, gain: float = 0.0) -> tuple[Scores, Scores, list[Any]]:
    """Rows of a cluster share an effect of the change that differs from cluster to cluster."""
    baseline, winner, keys = [], [], []
    for cluster in range(clusters):
        own = rng.choice([-effect, effect])
        for _ in range(size):
            baseline.append(float(rng.random() < 0.5))
            winner.append(float(rng.random() < 0.5 + own + gain))
            keys.append(cluster)
    return baseline, winner, keys


def timeouts(rng: Rng, n: int, side: int, share: float) -> tuple[Scores, Scores, None]:
    """One side goes unanswered on a share of the rows that speak against the gain: the winner where it is wrong, the
    baseline where it is right."""
    a, b, _ = binary(rng, n, 0.2, 0.2)
    unanswered = [rng.random() < share and (x == 1.0 if side == 0 else y == 0.0) for x, y in zip(a, b, strict=True)]
    if side == 0:
        return [None if u else x for u, x in zip(unanswered, a, strict=True)], b, None
    return a, [None if u else y for u, y in zip(unanswered, b, strict=True)], None


def worlds() -> Iterator[World]:
    for n in (20, 60, 200):
        yield World(f"0/1, n={n}", lambda r, n=n: binary(r, n, 0.15, 0.15))
        yield World(f"graded symmetric, n={n}", lambda r, n=n: graded(r, n, 0.15))
        yield World(f"graded coarse, n={n}", lambda r, n=n: graded(r, n, 0.15, grid=4))
        for lost in (0.01, 0.02, 0.05):
            yield World(f"graded skewed {lost:.0%}, n={n}", lambda r, n=n, lost=lost: skewed(r, n, lost))
        yield World(f"graded skewed 2% with noise, n={n}", lambda r, n=n: skewed(r, n, 0.02, 0.02))
        yield World(f"0/1 gain 0.2, n={n}", lambda r, n=n: binary(r, n, 0.3, 0.1), 0.2)
        yield World(f"graded gain 0.1, n={n}", lambda r, n=n: graded(r, n, 0.12, 0.05), 0.05)
    for times in (2, 10):
        yield World(f"rows repeated {times} times", lambda r, times=times: repeated(r, 60, times))
    yield World("clusters of 10", lambda r: clustered(r, 20, 10, 0.3))
    yield World("clusters of 5", lambda r: clustered(r, 40, 5, 0.3))
    for share in (0.1, 0.3):
        yield World(f"baseline unanswered {share:.0%}", lambda r, share=share: timeouts(r, 60, 0, share))
        yield World(f"winner unanswered {share:.0%}", lambda r, share=share: timeouts(r, 60, 1, share))


def proof_of(world: World, rng: Rng) -> Claim:
    baseline, winner, clusters = world.draw(rng)
    return paired_proof(baseline, winner, clusters=clusters)


def measure(world: World, runs: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, *world.name.encode()])
    proofs = [proof_of(world, rng) for _ in range(runs)]
    shown, covered = (
        sum(p.shown for p in proofs),
        sum(p.ci95[0] - 1e-9 <= world.gain <= p.ci95[1] + 1e-9 for p in proofs),
    )
    row = {
        "world": world.name,
        "runs": runs,
        "shown": shown / runs,
        "shown95": exact(shown, runs),
        "covered": covered / runs,
        "covered95": exact(covered, runs),
    }
    row["missed"] = [
        *(["false claims"] if not world.gain and row["shown95"][1] > 0.05 else []),
        *(["coverage"] if row["covered95"][1] < 0.93 else []),
    ]
    return row


def partial(runs: int, seed: int) -> dict[str, Any]:
    """A test that grows by resumed runs, from 20 to 200 rows by 20, and ends as soon as a gain is shown."""
    rng, claims = np.random.default_rng(seed), 0
    for _ in range(runs):
        baseline, winner, _ = binary(rng, 200, 0.15, 0.15)
        claims += any(
            paired_proof(baseline[:n], winner[:n], alpha=level_after(["earlier"] * i)).shown
            for i, n in enumerate(range(20, 201, 20))
        )
    row = {"world": "partial tests with resume", "runs": runs, "shown": claims / runs, "shown95": exact(claims, runs)}
    return {**row, "missed": ["false claims"] if row["shown95"][1] > 0.05 else []}


def power(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Of the whole rule, at the smallest gain that a typical test of that kind names."""
    rng = np.random.default_rng(seed)
    for n in (60, 200):
        gain = paired_proof(*binary(rng, n, 0.15, 0.15)[:2]).smallest_gain or 0.0
        share = max(0.3, gain)
        yield _power(f"0/1, n={n}", lambda g=gain, s=share, n=n: binary(rng, n, (s + g) / 2, (s - g) / 2), gain, runs)
    for n, deviation in ((60, 0.15), (200, 0.15), (200, 0.05)):
        noise = rng.normal(0, deviation, n)
        typical = (noise - noise.mean()) / noise.std(ddof=1) * deviation
        gain = paired_proof([0.4] * n, np.clip(0.4 + typical, 0, 1).tolist()).smallest_gain or 0.0

        def drawn(gain: float = gain, n: int = n, deviation: float = deviation) -> tuple[Scores, Scores, None]:
            return [0.4] * n, np.clip(rng.normal(0.4 + gain, deviation, n), 0, 1).tolist(), None

        yield _power(f"graded, deviation {deviation}, n={n}", drawn, gain, runs)


def _power(name: str, draw: Callable[[], tuple[Scores, Scores, None]], gain: float, runs: int) -> dict[str, Any]:
    shown = sum(paired_proof(*draw()[:2]).shown for _ in range(runs))
    low, high = exact(shown, runs)
    missed = ["power"] if gain == 0 or high < 0.75 or low > 0.85 else []
    return {
        "world": f"power, {name}",
        "runs": runs,
        "gain": gain,
        "power": shown / runs,
        "power95": (low, high),
        "missed": missed,
    }


def exact(hits: int, runs: int) -> tuple[float, float]:
    found = binomtest(hits, runs).proportion_ci(method="exact")
    return float(found.low), float(found.high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", nargs="*", default=None, help="only those whose name begins so")
    parser.add_argument("--out", type=Path, help="JSON lines")
    args = parser.parse_args()

    def wanted(name: str) -> bool:
        return args.world is None or any(name.startswith(w) for w in args.world)

    missed = False

    def show(row: dict[str, Any]) -> None:
        nonlocal missed
        missed |= bool(row["missed"])
        parts = [
            f"{key} {row[key]:.3f} [{row[f'{key}95'][0]:.3f}, {row[f'{key}95'][1]:.3f}]"
            for key in ("shown", "covered", "power")
            if key in row
        ]
        gain = f" at {row['gain']:.3f}" if "gain" in row else ""
        print(f"{row['world'] + gain:<40} {'  '.join(parts)}  {', '.join(row['missed'])}".rstrip(), flush=True)
        if args.out:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    for world in worlds():
        if wanted(world.name):
            show(measure(world, args.runs, args.seed))
    if wanted("partial"):
        show(partial(args.runs, args.seed))
    if wanted("power"):
        for row in power(args.runs, args.seed):
            show(row)
    sys.exit(int(missed))


if __name__ == "__main__":
    main()

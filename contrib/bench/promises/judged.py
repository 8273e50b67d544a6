"""The proof by a judge whose scores people's labels correct (PPI++), in SIMULATED worlds whose truth is known.

    python contrib/bench/promises/judged.py [--runs 1000] [--labels 100] [--out FILE]

No language model takes part, and no people: scores of both are drawn. Each run has 1,000 sealed rows with a judge's
scores, and labels for 100 of them. Targets, for the judge with a planted bias of 10 points: the 95% interval covers the
true gain in 93 to 97% of the runs; labels alone would need as many that 40% or more are saved; and where nothing was
gained, at most 5% of the runs claim a gain (the upper end of the exact 95% interval of their share). For a judge
that says nothing, the interval has to cover as often, and must not be wider than that of labels alone. Exits 1 if a
target is missed. Where ruins are rare, the interval of few labels does not cover, and what is asked is only that no
gain is claimed. For the nulls that are worst for few labels, those of two values (a small gain, or ruin), with a judge
that says nothing, the share of false claims is calculated without simulation: at most 2.5%, as for other proofs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom, binomtest

from workbench.proof import Claim
from workbench_kit.labels import JudgedRow, check_judge

ROWS = 1000


@dataclass(frozen=True)
class World:
    """gain: of the winner, by people. bias: what the judge adds to the winner. noise: deviation of a judge's score from
    the people's; None for a judge who draws its scores without looking. rare: the share of rows that the winner
    ruins, in place of a gain: on the others it gains so little that the mean is 0, and few labels show no ruin."""

    name: str
    gain: float
    bias: float
    noise: float | None
    rare: float = 0.0


WORLDS = [
    World("a judge with a bias of 10 points", 0.05, 0.10, 0.06),
    World("the same, nothing gained", 0.0, 0.10, 0.06),
    World("the same, scores of 0 and 1", 0.05, 0.10, -1.0),
    World("a judge without bias", 0.05, 0.0, 0.06),
    World("rare ruins, nothing gained", 0.0, 0.0, 0.06, rare=0.02),
    World("a judge that says nothing", 0.05, 0.10, None),
]


def draw(world: World, rng: np.random.Generator, labels: int) -> list[JudgedRow]:
    if world.noise is not None and world.noise < 0:
        return draw_binary(world, rng, labels)
    baseline = rng.uniform(0.3, 0.55, ROWS)
    winner = np.clip(baseline + world.gain + np.clip(rng.normal(0, 0.12, ROWS), -0.25, 0.25), 0, 1)
    if world.rare:
        ruined, mean = rng.random(ROWS) < world.rare, 0.425
        winner = np.where(ruined, 0.0, baseline + world.rare * mean / (1 - world.rare))
    if world.noise is None:
        judged = rng.uniform(0.2, 0.6, (2, ROWS))
    else:
        judged = np.clip(np.stack([baseline, winner]) + rng.normal(0, world.noise, (2, ROWS)), 0, 1)
    return as_rows(baseline, winner, judged[0], np.clip(judged[1] + world.bias, 0, 1), labels)


def draw_binary(world: World, rng: np.random.Generator, labels: int) -> list[JudgedRow]:
    """People say yes or no; the judge repeats them in 19 of 20 answers, and calls some wrong winners right."""
    kind = rng.choice(4, size=ROWS, p=[0.25 + world.gain, 0.25, 0.3 - world.gain / 2, 0.2 - world.gain / 2])
    people = np.stack([(kind == 1) | (kind == 2), (kind == 0) | (kind == 2)]).astype(float)
    judged = np.abs(people - (rng.random((2, ROWS)) < 0.05))
    wrong = people[1] == 0  # to add the bias to the mean, so many of the wrong ones are called right
    judged[1] = np.where(wrong & (rng.random(ROWS) < world.bias / wrong.mean()), 1.0, judged[1])
    return as_rows(people[0], people[1], judged[0], judged[1], labels)


def as_rows(a: Any, b: Any, judged_a: Any, judged_b: Any, labels: int) -> list[JudgedRow]:
    """The rows; the first have labels, which is as good as a draw, since all are drawn alike."""
    return [
        JudgedRow(
            i, (float(judged_a[i]), float(judged_b[i])), (float(a[i]), float(b[i])) if i < labels else (None, None)
        )
        for i in range(ROWS)
    ]


def judge_alone(rows: list[JudgedRow]) -> Claim:
    """The judge's own gain, with the interval of many rows."""
    found = np.array([(row.judge[1] or 0.0) - (row.judge[0] or 0.0) for row in rows])
    diff, half = float(found.mean()), 1.96 * float(found.std(ddof=1)) / math.sqrt(len(found))
    n, ends = len(rows), (diff - half, diff + half)
    return Claim("gain", n=n, baseline=0.5, winner=0.5, diff=diff, ci95=ends, p=0.0, shown=True, n_rows=n)


def measure(world: World, runs: int, labels: int, seed: int = 0) -> dict[str, Any]:
    """What comes out in a world, over many simulated runs."""
    rng = np.random.default_rng([seed, *world.name.encode()])
    covered = claimed = judge_covered = 0
    saved: list[float] = []
    for _ in range(runs):
        rows = draw(world, rng, labels)
        judge = judge_alone(rows)
        proof, check = check_judge(judge, rows)
        powered = check.more["powered"]
        covered += proof.ci95[0] <= world.gain <= proof.ci95[1]
        judge_covered += judge.ci95[0] <= world.gain <= judge.ci95[1]
        claimed += proof.shown
        saved.append(1 - labels / powered.labels_alone)
    exact = binomtest(claimed, runs).proportion_ci(0.95)
    return {
        "coverage": covered / runs,
        "coverage_of_the_judge_alone": judge_covered / runs,
        "claimed": claimed / runs,
        "claimed_ci95": [exact.low, exact.high],
        "fewer_labels": float(np.median(saved)),
    }


def worst_two_valued(labels: int, shares: int = 16) -> float:
    """The largest share of false claims over nulls of two values: ruin in a share q of the rows, and on the others a
    gain of q / (1 - q), which the judge scores alike. Exact: the number of ruins among the labels is binomial."""
    worst = 0.0
    for q in np.linspace(0.5, 8, shares) / labels:
        gain, claimed = q / (1 - q), 0.0
        for ruins in range(labels + 1):
            if (chance := float(binom.pmf(ruins, labels, q))) < 1e-6:
                continue
            differences = [-1.0] * ruins + [gain] * (labels - ruins)
            rows = [JudgedRow(i, (0.5, 0.5), (max(0.0, -d), max(0.0, d))) for i, d in enumerate(differences)]
            rows += [JudgedRow(labels + i, (0.5, 0.5)) for i in range(labels)]
            claimed += chance * check_judge(judge_alone(rows), rows)[0].shown
        worst = max(worst, claimed)
    return worst


def failures(world: World, found: dict[str, Any], runs: int) -> list[str]:
    """The targets that are missed. The band of the coverage is widened by the noise of fewer than 1,000 runs."""
    noise = max(0.0, 2 * math.sqrt(0.05 * 0.95) * (1 / math.sqrt(runs) - 1 / math.sqrt(1000)))
    missed = []
    if not world.rare and not 0.93 - noise <= found["coverage"] <= 0.97 + noise:
        missed.append(f"coverage {found['coverage']:.3f}")
    if world.noise is not None and not world.rare and found["fewer_labels"] < 0.4:
        missed.append(f"only {found['fewer_labels']:.0%} fewer labels")
    if world.noise is None and found["fewer_labels"] < -0.05:
        missed.append("a judge that says nothing makes it worse")
    if world.gain == 0 and found["claimed_ci95"][1] > 0.05:
        missed.append(f"{found['claimed']:.1%} false claims")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results, missed = {}, []
    for world in WORLDS:
        found = results[world.name] = measure(world, options.runs, options.labels)
        missed += [f"{world.name}: {one}" for one in failures(world, found, options.runs)]
        alone, fewer = found["coverage_of_the_judge_alone"], found["fewer_labels"]
        print(
            f"{world.name:<34} covers {found['coverage']:.1%} (judge alone {alone:.1%}), "
            f"claims a gain {found['claimed']:.1%}, {fewer:.0%} fewer labels",
            flush=True,
        )
    for labels in (30, 60, 100, 200):
        results[f"two values, {labels} labels"] = share = worst_two_valued(labels)
        missed += [f"two values, {labels} labels: {share:.1%} false claims"] if share > 0.025 else []
        print(f"nulls of two values, {labels:>3} labels: at most {share:.1%} false claims", flush=True)
    if options.out:
        made = {"simulated": True, "runs": options.runs, "labels": options.labels, "worlds": results}
        options.out.write_text(json.dumps(made, indent=1) + "\n")
    print("\n".join(["missed:", *missed]) if missed else "all targets met")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
